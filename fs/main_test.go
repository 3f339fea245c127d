package fs_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tine/fs"
	"tine/overlay"
	"tine/snapshot/image/imagetest"
)

// fixture is a fork on a base, to be mounted by tests.
type fixture struct {
	base   *imagetest.Tree
	fork   *overlay.Fork
	config overlay.Config
}

// newFork makes a fork of a base with the given entries.
func newFork(t testing.TB, entries ...imagetest.Entry) *fixture {
	t.Helper()
	base := imagetest.Build(t, entries...)
	cfg := overlay.Config{
		Base: base.Image, Contents: base.Contents, LayersDir: t.TempDir(), Layers: []overlay.LayerID{overlay.NewLayerID()},
		ForkID: "test-fork", BaseID: "test-base",
	}
	fork, err := overlay.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fork.Close() })
	return &fixture{base: base, fork: fork, config: cfg}
}

// newServer starts a server that ends with the test.
func newServer(t testing.TB) *fs.Server {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	s, err := fs.NewServer(fs.Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// mount attaches a fork at a new directory.
func mount(t testing.TB, s *fs.Server, fork *overlay.Fork, opt fs.MountOptions) (string, *fs.Workspace) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	w, err := s.Mount(ctx, fork, opt, fs.ConnOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	dir := t.TempDir()
	if err := w.Attach(dir); err != nil {
		t.Fatal(err)
	}
	return dir, w
}

// workspace is a mounted fork with the given base.
func workspace(t testing.TB, entries ...imagetest.Entry) (string, *fs.Workspace, *fixture) {
	t.Helper()
	f := newFork(t, entries...)
	s := newServer(t)
	dir, w := mount(t, s, f.fork, fs.MountOptions{})
	return dir, w, f
}

// testLog fails nothing, but shows what the server says.
func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(string(b))
	return len(b), nil
}

// as runs fn on a thread of its own with the given user's rights and groups.
func as(t *testing.T, uid, gid int, groups []int, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		defer close(done)
		if err := dropTo(uid, gid, groups); err != nil {
			t.Errorf("becoming %d:%d: %v", uid, gid, err)
			return
		}
		fn()
	}()
	<-done
}

// dropTo changes the calling thread's ids only, which the library's functions don't.
func dropTo(uid, gid int, groups []int) error {
	list := make([]uint32, len(groups)+1)
	for i, g := range groups {
		list[i] = uint32(g)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&list[0])), 0); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
		return e
	}
	return nil
}

// openFile opens with open(2) and closes with the test.
func openFile(t *testing.T, path string, flags int, mode uint32) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, mode)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func stat(t *testing.T, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("lstat %s: %v", path, err)
	}
	return st
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0644); err != nil {
		t.Fatal(err)
	}
}

func wantContent(t *testing.T, path, want string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != want {
		t.Errorf("%s has %d bytes %.60q, want %d bytes %.60q", path, len(b), b, len(want), want)
	}
}

// within waits until ok holds.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

// children are functions that tests run in a process of their own: what a serving process must not do on its own
// mount, such as touching mapped memory.
var children = map[string]func(args []string) error{}

const childEnv = "TINE_FS_TEST_CHILD"

// inChild runs one of children.
func inChild(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		if err := children[name](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// startChild runs one of children until it says "ready", and until stop.
func startChild(t *testing.T, name string, args ...string) (cmd *exec.Cmd, stop func()) {
	t.Helper()
	cmd = exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() { cmd.Process.Kill(); cmd.Wait() }
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		stop()
		t.Fatalf("%s: %q, %v, %v", name, line, err, cmd.ProcessState)
	}
	return cmd, stop
}
