package integration

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// server is a `tine mount` in the foreground.
type server struct {
	l      *lab
	fork   string
	dir    string
	cmd    *exec.Cmd
	out    lockedBuffer
	errs   lockedBuffer
	exited chan struct{}
	state  error
}

// lockedBuffer is written by a process's pipe and read by the test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// fuseMagic is FUSE_SUPER_MAGIC.
const fuseMagic = 0x65735546

// mountLimit is how long a mount or an unmount may take on a busy machine.
const mountLimit = 30 * time.Second

// mount serves a fork at dir (made if missing) and returns once the server says that it is mounted, and it is.
func (l *lab) mount(fork, dir string) *server {
	l.t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		l.t.Fatal(err)
	}
	s := &server{l: l, fork: fork, dir: dir, exited: make(chan struct{}), cmd: l.tineCmd("mount", fork, dir)}
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.errs
	// The server must not get the terminal's signals, nor outlive a test binary that is killed.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	go func() {
		s.state = s.cmd.Wait()
		close(s.exited)
	}()
	started[s.cmd.Process.Pid] = true
	l.servers = append(l.servers, s)
	deadline := time.Now().Add(mountLimit)
	for !strings.Contains(s.out.String(), "\n") {
		select {
		case <-s.exited:
			l.t.Fatalf("tine mount %s %s ended: %v: %s", fork, dir, s.state, s.errs.String())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("tine mount %s %s: not mounted after %v: %s", fork, dir, mountLimit, s.errs.String())
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Type != fuseMagic {
		l.t.Fatalf("tine mount says it is ready, and the mount point says %v, file system %x", err, fs.Type)
	}
	return s
}

func (s *server) running() bool {
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// stop asks the server to end, as Ctrl-C does, and checks that it ended well and unmounted.
func (s *server) stop() {
	s.l.t.Helper()
	s.end(syscall.SIGTERM)
}

func (s *server) end(sig syscall.Signal) {
	s.l.t.Helper()
	before := len(mountsAt(s.dir))
	_ = s.cmd.Process.Signal(sig)
	select {
	case <-s.exited:
	case <-time.After(mountLimit):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-s.exited:
		case <-time.After(3 * time.Second):
			_ = s.cmd.Process.Kill()
		}
		s.l.t.Errorf("tine mount %s %s did not end within %v of %v: %s", s.fork, s.dir, mountLimit, sig, s.errs.String())
		return
	}
	if s.state != nil {
		s.l.t.Errorf("tine mount %s %s, ended by %v: %v: %s", s.fork, s.dir, sig, s.state, s.errs.String())
	}
	if n := len(mountsAt(s.dir)); n != before-1 {
		s.l.t.Errorf("%d mounts at %s before %v, %d after", before, s.dir, sig, n)
	}
}

// kill9 kills the server and waits until it is gone. Its dead mount stays.
func (s *server) kill9() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// detach removes a dead mount from its directory.
func (s *server) detach() {
	s.l.t.Helper()
	if err := unix.Unmount(s.dir, unix.MNT_DETACH); err != nil {
		s.l.t.Fatalf("detach %s: %v", s.dir, err)
	}
}

// mountsAt lists the ids of the mounts whose mount point is dir, bottom first.
func mountsAt(dir string) []string {
	var out []string
	for _, m := range mounts() {
		if m.point == dir {
			out = append(out, m.id)
		}
	}
	return out
}

type mountInfo struct{ id, point, fstype, source string }

// mounts reads /proc/self/mountinfo.
func mounts() []mountInfo {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []mountInfo
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for s := bufio.NewScanner(f); s.Scan(); {
		w := strings.Fields(s.Text())
		m := mountInfo{id: w[0], point: filepath.Clean(unescape.Replace(w[4]))}
		for i, x := range w {
			if x == "-" && i+2 < len(w) {
				m.fstype, m.source = w[i+1], unescape.Replace(w[i+2])
			}
		}
		out = append(out, m)
	}
	return out
}
