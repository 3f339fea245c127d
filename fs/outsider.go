package fs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// An outsider is a small process that uses a server's mounts on its behalf: for the first probe, and for syncfs.
//
// A thread that waits for an answer of its own process can't be killed while it waits, and the descriptors that it
// shares with the other threads stay open with it: after kill -9 nobody would answer, /dev/fuse would never be
// closed, so that the mount would hang instead of failing, and the locks on the fork would be held for ever. The
// outsider has none of the server's descriptors but its socket and what it is handed. It ends with its server.
//
// It is this program, started again: the package's init takes over when the environment says so. (A thread with a
// descriptor table of its own won't do: Go's runtime uses descriptors on any thread.)
type outsider struct {
	mu   sync.Mutex
	sock int // our end; 0: not running
	off  bool
}

// outsiderEnv marks the outsider's process.
const outsiderEnv = "TINE_FS_OUTSIDER"

func init() {
	if os.Getenv(outsiderEnv) == "" {
		return
	}
	// Other descriptors stay: the runtime may have its own by now, and would die of a closed one. What the server opens
	// is closed on exec.
	const sock = 3
	unix.Chdir("/")
	obeyAll(sock)
	os.Exit(0)
}

// What an outsider does; the first byte of an order. The rest of it is a path, relative to the descriptor that comes
// with the order, or absolute if none does.
const (
	doProbe = 'p' // open the root, and open, poll and close the path
	doSync  = 's' // syncfs of the directory at the path
)

// do has the outsider do what with path below root (-1: none). The error is the failed step's.
func (o *outsider) do(what byte, root int, path string) error {
	err := o.try(what, root, path)
	if errors.Is(err, errOutsiderDied) {
		err = o.try(what, root, path) // another one
	}
	return err
}

var errOutsiderDied = errors.New("fuse: the outsider process died")

func (o *outsider) try(what byte, root int, path string) error {
	// The answer comes by a pipe. (A socket that is itself on its way through a socket is the collector's business.)
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("fuse: outsider: %w", err)
	}
	defer unix.Close(p[0])
	fds := []int{p[1]}
	if root >= 0 {
		fds = append(fds, root)
	}
	err := o.send(append([]byte{what}, path...), unix.UnixRights(fds...))
	unix.Close(p[1])
	if err != nil {
		return err
	}
	var answer [64]byte
	for {
		n, err := unix.Read(p[0], answer[:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("fuse: outsider: %w", err)
		case n < 4:
			o.stop(false)
			return errOutsiderDied
		}
		if errno := unix.Errno(binary.NativeEndian.Uint32(answer[:])); errno != 0 {
			return fmt.Errorf("fuse: %s: %w", answer[4:n], errno)
		}
		return nil
	}
}

// send gives an order to the running outsider, and starts it first if it isn't.
func (o *outsider) send(order, rights []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.startLocked(); err != nil {
		return err
	}
	if err := unix.Sendmsg(o.sock, order, rights, nil, unix.MSG_NOSIGNAL); err != nil {
		unix.Close(o.sock)
		o.sock = 0
		return fmt.Errorf("%w: %w", errOutsiderDied, err)
	}
	return nil
}

// warm starts the outsider before it is needed.
func (o *outsider) warm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.startLocked() // the first order tells what is wrong
}

// startLocked starts the outsider if it doesn't run. o.mu is held.
func (o *outsider) startLocked() error {
	if o.off {
		return os.ErrClosed
	}
	if o.sock != 0 {
		return nil
	}
	sock, err := startOutsider()
	if err == nil {
		o.sock = sock
	}
	return err
}

// stop lets the outsider go; for good if off.
func (o *outsider) stop(off bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.off = o.off || off
	if o.sock != 0 {
		unix.Close(o.sock)
		o.sock = 0
	}
}

func startOutsider() (sock int, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("fuse: outsider: %w", err)
	}
	theirs := os.NewFile(uintptr(p[1]), "outsider")
	defer theirs.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args[0] = subtype + "-outsider"
	cmd.Env = []string{outsiderEnv + "=1", "GOMAXPROCS=2"}
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		unix.Close(p[0])
		return 0, fmt.Errorf("fuse: outsider: %w", err)
	}
	go cmd.Wait()
	return p[0], nil
}

// obeyAll takes orders until the server is gone. Each is done in a goroutine, since a mount may not answer.
func obeyAll(sock int) {
	for {
		var order [1 + unix.PathMax]byte
		oob := make([]byte, unix.CmsgSpace(2*4))
		n, oobn, _, _, err := unix.Recvmsg(sock, order[:], oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n < 1 {
			return
		}
		list, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil || len(list) != 1 {
			return
		}
		fds, err := unix.ParseUnixRights(&list[0])
		if err != nil || len(fds) == 0 {
			return
		}
		go func() {
			root := unix.AT_FDCWD
			if len(fds) > 1 {
				root = fds[1]
			}
			step, err := obey(order[0], root, string(order[1:n]))
			errno, _ := err.(unix.Errno)
			answer := append(binary.NativeEndian.AppendUint32(nil, uint32(errno)), step...)
			// First the descriptors, so that the server may count on the mount's being unused.
			for _, fd := range fds[1:] {
				unix.Close(fd)
			}
			unix.Write(fds[0], answer)
			unix.Close(fds[0])
		}()
	}
}

// obey does one order and names the step that failed.
func obey(what byte, root int, path string) (step string, err error) {
	const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	switch what {
	case doProbe:
		dir, err := unix.Openat(root, ".", dirFlags, 0)
		if err != nil {
			return "probe of the root", err
		}
		defer unix.Close(dir)
		fd, err := unix.Openat(root, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return "probe", err
		}
		// A Go program that opens one of these files polls it while it holds a processor. In the serving process that
		// can be the processor that would answer.
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); err != nil && err != unix.EINTR {
			unix.Close(fd)
			return "probe: poll", err
		}
		return "probe: close", unix.Close(fd)
	case doSync:
		dir, err := unix.Openat(root, path, dirFlags, 0)
		if err != nil {
			return "syncfs: open", err
		}
		defer unix.Close(dir)
		return "syncfs", unix.Syncfs(dir)
	}
	return "unknown order", unix.EINVAL
}
