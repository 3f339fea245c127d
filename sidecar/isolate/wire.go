package isolate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// initArg is the name under which init is executed; MaybeInit looks for it.
const initArg = "tine-init"

// Descriptors that init is started with, beside the standard three (which are the program's).
const (
	controlFD = 3 + iota
	configFD
	exeFD
	firstMountFD
)

// config is what init has to know. It travels in a memory file: arguments may be large.
type config struct {
	Args, Env []string
	Dir       string
	UID, GID  uint32
	Groups    []uint32
	Umask     uint32

	Workspaces []mountConfig
	Binds      []Bind
	Files      []File

	Hide, Sockets []string
	WritableHost  bool
	Network       Network
	Home          Home
	Hostname      string
	TTY           bool
	Rows, Cols    uint16

	Stage  string // host directory with root, upper, work
	Cgroup bool
	V1     []string // controllers whose v1 hierarchies the run has a group in
	V2     bool

	Unfiltered bool
}

// mountConfig is a workspace: FD is a descriptor of a detached mount, or -1 for Path.
type mountConfig struct {
	Target, Path string
	FD           int
}

// message is one datagram of the control socket. Only the fields of its Op are set.
//
//	caller → init   go             start building; the cgroup is in place
//	                signal         Signal, All
//	                resize         Rows, Cols
//	                guard          Paths that are to be covered too
//	                spawn          ID, with four descriptors (see session.go)
//	init → caller   ready          Report; a terminal's master descriptor comes along
//	                started        ID, PID (in the view's pid namespace)
//	                failed         ID, Failure
//	                exited         ID, Code, Signal
type message struct {
	Op         string   `json:"op"`
	ID         int      `json:"id,omitempty"` // 0 is the program of the run, others were spawned beside it
	Signal     int      `json:"signal,omitempty"`
	All        bool     `json:"all,omitempty"`
	Rows, Cols uint16   `json:",omitempty"`
	Code       int      `json:"code,omitempty"`
	PID        int      `json:"pid,omitempty"`
	Report     *Report  `json:"report,omitempty"`
	Failure    *failure `json:"failure,omitempty"`
	Paths      []string `json:"paths,omitempty"`
}

// maxMessage bounds a datagram; the socket's buffer is larger.
const maxMessage = 128 << 10

// channel is one end of the control socket.
type channel struct{ conn *net.UnixConn }

func newChannel(f *os.File) (channel, error) {
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return channel{}, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return channel{}, errors.New("control descriptor is no unix socket")
	}
	return channel{u}, nil
}

func (c channel) send(m message, fds ...int) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) > maxMessage {
		return fmt.Errorf("control message of %d bytes", len(data))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = c.conn.WriteMsgUnix(data, rights, nil)
	return err
}

// receive returns io.EOF when the other side is gone.
func (c channel) receive() (message, []*os.File, error) {
	buf := make([]byte, maxMessage)
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, _, err := c.conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return message{}, nil, err
	}
	files := received(oob[:oobn])
	if n == 0 {
		closeAll(files)
		return message{}, nil, io.EOF
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeAll(files)
		return message{}, nil, errors.New("truncated control message")
	}
	var m message
	if err := json.Unmarshal(buf[:n], &m); err != nil {
		closeAll(files)
		return message{}, nil, err
	}
	return m, files, nil
}

func received(oob []byte) []*os.File {
	var files []*os.File
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// memoryFile puts a value, as JSON, into a file that exists in memory only. Its size is bounded by nothing else.
func memoryFile(v any) (*os.File, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("tine-config", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "tine-config")
	if _, err := f.WriteAt(data, 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func readMemoryFile(f *os.File, v any) error {
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<40))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}
