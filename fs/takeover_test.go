package fs_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine/fs"
	"tine/fs/transport"
	"tine/overlay"
	"tine/snapshot/content"
	"tine/snapshot/durable"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

// The keeper of these tests is the test process: it holds the mount, its descriptor, INIT and the connection's id.
// Servers are processes of their own that are killed and followed by others. Programs in the mount are processes
// too, and must not notice.

// takeover is what the keeper hands to each server.
type takeover struct {
	Image  string
	Layers string
	Layer  overlay.LayerID
	Conn   [16]byte
	Init   string // hex; empty for the first server
	DieAt  uint32 // die after this opcode was done, before its reply
}

type keeper struct {
	t      *testing.T
	spec   takeover
	mount  *fs.Mounted
	dir    string
	server *exec.Cmd
	resent int // requests that servers were handed for the second time
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	_, b := imagetest.Builder(t, imagetest.Dir("base/dir", 0755))
	k := &keeper{t: t, dir: t.TempDir()}
	k.spec = takeover{Image: filepath.Join(t.TempDir(), "image"), Layers: t.TempDir(), Layer: overlay.NewLayerID(), Conn: [16]byte{1, 2, 3}}
	if _, err := b.Write(durable.OS, k.spec.Image); err != nil {
		t.Fatal(err)
	}
	m, err := fs.Mount(context.Background(), fs.MountOptions{})
	if err != nil {
		t.Fatal(err)
	}
	k.mount = m
	t.Cleanup(func() {
		m.Detach()
		fs.Abort(m.Minor)
		if k.server != nil {
			k.kill()
		}
		m.Close()
	})
	k.start(0)
	if err := m.Attach(k.dir); err != nil {
		t.Fatal(err)
	}
	return k
}

// start runs the next server and waits until it serves.
func (k *keeper) start(dieAt uint32) {
	k.t.Helper()
	k.spec.DieAt = dieAt
	arg, _ := json.Marshal(k.spec)
	cmd := exec.Command("/proc/self/exe", string(arg))
	cmd.Env = append(os.Environ(), childEnv+"=takeover-server")
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(dup(k.t, k.mount.Dev)), "fuse"), os.NewFile(uintptr(dup(k.t, k.mount.FD())), "root")}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	k.server = cmd
	r := bufio.NewReader(out)
	line, err := r.ReadString('\n')
	if err != nil {
		k.t.Fatalf("a server doesn't start: %v", err)
	}
	k.spec.Init = strings.TrimSpace(line)
	go func() {
		n := 0
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Sscanf(line, "resent %d", &n)
			resentTotal.Lock()
			k.resent += n
			resentTotal.Unlock()
		}
	}()
}

var resentTotal sync.Mutex

func dup(t *testing.T, fd int) int {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// kill ends the server and makes sure that it is dead, which is the fence: nothing of it writes to the journal or
// to the descriptor any more.
func (k *keeper) kill() {
	k.server.Process.Kill()
	k.server.Wait()
	k.server = nil
}

// client starts a program in the mount.
func (k *keeper) client(name string, args ...string) (wait func() error) {
	k.t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{k.dir}, args...)...)
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	return func() error {
		err := cmd.Wait()
		if out.Len() > 0 {
			k.t.Logf("%s: %s", name, strings.TrimSpace(out.String()))
		}
		return err
	}
}

// noContents has none: the base has no files.
type noContents struct{}

func (*noContents) Open(id content.ID) (content.Reader, error) {
	return nil, &content.MissingError{ID: id}
}

func init() { children["takeover-server"] = takeoverServer }

// takeoverServer is one server process: descriptor 3 is /dev/fuse, 4 the mount's root.
func takeoverServer(args []string) error {
	var spec takeover
	if err := json.Unmarshal([]byte(args[0]), &spec); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	base, err := image.Open(durable.OS, spec.Image, nil)
	if err != nil {
		return err
	}
	fork, err := overlay.Open(overlay.Config{
		Base: base, Contents: &noContents{}, LayersDir: spec.Layers, Layers: []overlay.LayerID{spec.Layer},
		ForkID: "taken-over", BaseID: "base", KeepOrphans: true,
	})
	if err != nil {
		return err
	}
	s, err := fs.NewServer(fs.Options{Log: log})
	if err != nil {
		return err
	}
	if spec.DieAt != 0 {
		fs.WrapHandlers(func(h transport.Handler) transport.Handler { return &mortal{h, spec.DieAt} })
	}
	opt := fs.ConnOptions{ID: spec.Conn}
	var init []byte
	if spec.Init == "" {
		opt.Root = 4
	} else if init, err = hex.DecodeString(spec.Init); err != nil {
		return err
	}
	c, err := s.Serve(context.Background(), 3, init, fork, opt)
	if err != nil {
		return err
	}
	fmt.Println(hex.EncodeToString(c.Init()))
	time.Sleep(150 * time.Millisecond)
	fmt.Println("resent", c.Resent())
	return c.Wait()
}

// mortal kills its process after it has done a request of one kind and before the reply.
type mortal struct {
	transport.Handler
	op uint32
}

func (m *mortal) Handle(msg transport.Msg, out []byte) int {
	n := m.Handler.Handle(msg, out)
	if msg.Opcode() == m.op {
		unix.Kill(unix.Getpid(), unix.SIGKILL)
		select {}
	}
	return n
}

// onceOnly are operations that must not be done twice, each with the opcode at whose end the server dies. arrange
// runs before that server serves, do is the operation, check looks at what it did.
var onceOnly = []struct {
	name    string
	op      uint32
	arrange func(dir string) error
	do      func(dir string) error
	check   func(dir string) error
}{
	{"create", transport.Create, nil, func(d string) error {
		fd, err := unix.Open(d+"/f", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0640)
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, []byte("data"))
		return err
	}, func(d string) error { return fileIs(d+"/f", "data") }},
	{"mkdir", transport.Mkdir, nil, func(d string) error { return unix.Mkdir(d+"/d", 0750) }, nil},
	{"mknod", transport.Mknod, nil, func(d string) error { return unix.Mknod(d+"/p", unix.S_IFIFO|0600, 0) }, nil},
	{"symlink", transport.Symlink, nil, func(d string) error { return unix.Symlink("to", d+"/l") }, nil},
	{"link", transport.Link, put("f", "1"), func(d string) error { return unix.Link(d+"/f", d+"/g") }, func(d string) error { return linksAre(d+"/f", 2) }},
	{"unlink", transport.Unlink, put("f", "1"), func(d string) error { return unix.Unlink(d + "/f") }, nil},
	{"rmdir", transport.Rmdir, func(d string) error { return unix.Mkdir(d+"/d", 0755) }, func(d string) error { return unix.Rmdir(d + "/d") }, nil},
	{"rename", transport.Rename2, put("f", "1"), func(d string) error {
		return unix.Renameat2(unix.AT_FDCWD, d+"/f", unix.AT_FDCWD, d+"/g", unix.RENAME_NOREPLACE)
	}, func(d string) error { return fileIs(d+"/g", "1") }},
	{"exchange", transport.Rename2, both(put("f", "1"), put("g", "2")), func(d string) error {
		return unix.Renameat2(unix.AT_FDCWD, d+"/f", unix.AT_FDCWD, d+"/g", unix.RENAME_EXCHANGE)
	}, func(d string) error { return fileIs(d+"/f", "2") }},
	{"setxattr", transport.Setxattr, put("f", "1"), func(d string) error {
		return unix.Setxattr(d+"/f", "user.x", []byte("v"), unix.XATTR_CREATE)
	}, nil},
	{"removexattr", transport.Removexattr, both(put("f", "1"), func(d string) error {
		return unix.Setxattr(d+"/f", "user.x", []byte("v"), 0)
	}), func(d string) error { return unix.Removexattr(d+"/f", "user.x") }, nil},
	{"tmpfile", transport.Tmpfile, nil, func(d string) error {
		fd, err := unix.Open(d, unix.O_TMPFILE|unix.O_RDWR, 0600)
		if err != nil {
			return err
		}
		if _, err := unix.Write(fd, []byte("tmp")); err != nil {
			return err
		}
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, d+"/t", unix.AT_SYMLINK_FOLLOW)
	}, func(d string) error { return fileIs(d+"/t", "tmp") }},
	{"copy", transport.CopyFileRange, put("f", "abcdefgh"), func(d string) error {
		fd, err := unix.Open(d+"/f", unix.O_RDWR, 0)
		if err != nil {
			return err
		}
		from, to := int64(0), int64(2) // overlapping would be refused; done twice, "ababab.."
		n, err := unix.CopyFileRange(fd, &from, fd, &to, 2, 0)
		if err == nil && n != 2 {
			err = fmt.Errorf("copied %d", n)
		}
		return err
	}, func(d string) error { return fileIs(d+"/f", "ababefgh") }},
	{"write", transport.Write, put("f", ""), func(d string) error {
		fd, err := unix.Open(d+"/f", unix.O_WRONLY|unix.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, []byte("once"))
		return err
	}, func(d string) error { return fileIs(d+"/f", "once") }},
}

func put(name, data string) func(string) error {
	return func(d string) error { return os.WriteFile(d+"/"+name, []byte(data), 0644) }
}

func both(a, b func(string) error) func(string) error {
	return func(d string) error {
		if err := a(d); err != nil {
			return err
		}
		return b(d)
	}
}

func fileIs(path, want string) error {
	b, err := os.ReadFile(path)
	if err == nil && string(b) != want {
		err = fmt.Errorf("%s is %q, want %q", path, b, want)
	}
	return err
}

func linksAre(path string, want uint64) error {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if err == nil && uint64(st.Nlink) != want {
		err = fmt.Errorf("%d links", st.Nlink)
	}
	return err
}

func init() {
	// Arguments: mount, operation, step.
	children["once-only"] = func(args []string) error {
		for _, o := range onceOnly {
			if o.name != args[1] {
				continue
			}
			step := map[string]func(string) error{"arrange": o.arrange, "do": o.do, "check": o.check}[args[2]]
			if step == nil {
				return nil
			}
			return step(args[0] + "/" + o.name)
		}
		return fmt.Errorf("no operation %s", args[1])
	}
}

// A server dies when an operation is in the journal and its reply is not out. The next one answers from the
// journal: the caller gets its success, and the operation was done once.
func TestO3_TakeoverDoesOnce(t *testing.T) {
	k := newKeeper(t)
	for _, o := range onceOnly {
		if err := k.client("mkdir", o.name)(); err != nil {
			t.Fatal(err)
		}
		if err := k.client("once-only", o.name, "arrange")(); err != nil {
			t.Fatalf("%s: arrange: %v", o.name, err)
		}
		k.kill()
		k.start(o.op)
		wait := k.client("once-only", o.name, "do")
		dead := make(chan struct{})
		go func() { k.server.Wait(); close(dead) }()
		select {
		case <-dead:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the request didn't come", o.name)
		}
		k.start(0)
		if err := wait(); err != nil {
			t.Errorf("%s: %v", o.name, err)
		}
		if err := k.client("once-only", o.name, "check")(); err != nil {
			t.Errorf("%s: check: %v", o.name, err)
		}
	}
}

func init() {
	children["mkdir"] = func(args []string) error { return unix.Mkdir(args[0]+"/"+args[1], 0755) }
}
