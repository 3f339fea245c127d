package fs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine/fs"
	"tine/overlay"
	"tine/snapshot/content"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

// flaky fails, panics or waits where a test tells it to.
type flaky struct {
	image.Tree
	content.Opener
	missing atomic.Bool
	panics  atomic.Bool
	gate    chan struct{} // not nil: contents wait for it
	opened  atomic.Int32
}

func (f *flaky) Open(id content.ID) (content.Reader, error) {
	f.opened.Add(1)
	if f.gate != nil {
		<-f.gate
	}
	if f.panics.Load() {
		panic("broken source")
	}
	if f.missing.Load() {
		return nil, &content.MissingError{ID: id, Cause: unix.ENOENT}
	}
	return f.Opener.Open(id)
}

func flakyWorkspace(t *testing.T, f *flaky, entries ...imagetest.Entry) string {
	t.Helper()
	base := imagetest.Build(t, entries...)
	f.Tree, f.Opener = base.Image, base.Contents
	fork, err := overlay.Open(overlay.Config{
		Base: f, Contents: f, LayersDir: t.TempDir(), Layers: []overlay.LayerID{overlay.NewLayerID()}, ForkID: "f", BaseID: "b",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fork.Close() })
	dir, _ := mount(t, newServer(t), fork, fs.MountOptions{})
	return dir
}

// A content that can't be read is EIO, never empty or wrong, and is right once it can be read.
func TestO5_MissingContent(t *testing.T) {
	f := new(flaky)
	f.missing.Store(true)
	dir := flakyWorkspace(t, f, imagetest.File("f", "content", 0644), imagetest.Symlink("l", "f"))
	for range 2 {
		if b, err := os.ReadFile(dir + "/f"); !errors.Is(err, unix.EIO) || len(b) > 0 {
			t.Errorf("%q, %v", b, err)
		}
	}
	if l, err := os.Readlink(dir + "/l"); !errors.Is(err, unix.EIO) {
		t.Errorf("%q, %v", l, err)
	}
	f.missing.Store(false)
	wantContent(t, dir+"/l", "content")
}

func TestPanicInHandlerIsEIO(t *testing.T) {
	f := new(flaky)
	dir := flakyWorkspace(t, f, imagetest.Symlink("l", "target"))
	f.panics.Store(true)
	if l, err := os.Readlink(dir + "/l"); !errors.Is(err, unix.EIO) {
		t.Errorf("%q, %v", l, err)
	}
	f.panics.Store(false)
	if l, err := os.Readlink(dir + "/l"); err != nil || l != "target" {
		t.Errorf("%q, %v", l, err)
	}
}

// While contents are awaited, everything else in the mount goes on.
func TestWaitingContentsBlockNobodyElse(t *testing.T) {
	f := &flaky{gate: make(chan struct{})}
	var entries []imagetest.Entry
	const n = 40
	for i := range n {
		entries = append(entries, imagetest.File("slow/"+strings.Repeat("f", i+1), strings.Repeat("s", i+1), 0644))
	}
	dir := flakyWorkspace(t, f, entries...)
	errs := make(chan error, n)
	for i := range n {
		go func() {
			b, err := os.ReadFile(dir + "/slow/" + strings.Repeat("f", i+1))
			if err == nil && len(b) != i+1 {
				err = errors.New("wrong length")
			}
			errs <- err
		}()
	}
	within(t, 10*time.Second, "all contents are awaited", func() bool { return f.opened.Load() == n })
	write(t, dir+"/new", "meanwhile")
	wantContent(t, dir+"/new", "meanwhile")
	if names := readNames(t, dir+"/slow"); len(names) != n {
		t.Errorf("%d names", len(names))
	}
	close(f.gate)
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// A parked fork stops changes, not reading, and lets go of them all. (In the changing directory itself the kernel's
// own lock makes look-ups of names that it doesn't know wait.)
func TestParkedChangesWait(t *testing.T) {
	dir, _, f := workspace(t, imagetest.File("f", "content", 0644), imagetest.Dir("d", 0755))
	if err := f.fork.Park(context.Background()); err != nil {
		t.Fatal(err)
	}
	const n = 30
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- unix.Mkdir(dir+"/d/"+strings.Repeat("d", i+1), 0755) }()
	}
	wantContent(t, dir+"/f", "content")
	time.Sleep(20 * time.Millisecond)
	wantContent(t, dir+"/f", "content")
	select {
	case err := <-errs:
		t.Errorf("a change went through: %v", err)
	default:
	}
	f.fork.Unpark()
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// syncfs doesn't wait for pages that it writes back; Sync does.
func TestSyncWaitsForMappedPages(t *testing.T) {
	dir, w, f := workspace(t, imagetest.File("m", strings.Repeat("a", 1<<20), 0644))
	cmd, stop := startChild(t, "map-and-hold", dir+"/m")
	defer stop()
	_ = cmd
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := w.Conn.Sync(ctx, -1, dir); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	if n, err := f.fork.Read(stat(t, dir+"/m").Ino, buf, 0); n != len(buf) || err != nil || strings.Trim(string(buf), "z") != "" {
		t.Errorf("not everything has arrived: %d, %v", n, err)
	}
}

func init() {
	children["map-and-hold"] = func(args []string) error {
		_, m, err := mapFile(args[0])
		if err != nil {
			return err
		}
		for i := range m {
			m[i] = 'z'
		}
		os.Stdout.WriteString("ready\n")
		time.Sleep(time.Minute)
		return nil
	}
}

// A session is handed over to another server of the same process without its users' noticing.
func TestDetachAndServeAgain(t *testing.T) {
	f := newFork(t, imagetest.File("f", "content", 0644))
	a, b := newServer(t), newServer(t)
	dir, w := mount(t, a, f.fork, fs.MountOptions{})
	fd := openFile(t, dir+"/new", unix.O_CREAT|unix.O_RDWR, 0644)
	dev, err := w.Conn.Detach()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- unix.Mkdir(dir+"/while-nobody-serves", 0755) }()
	time.Sleep(10 * time.Millisecond)
	c, err := b.Serve(context.Background(), dev, w.Conn.Init(), f.fork, fs.ConnOptions{ID: w.Conn.ID(), Minor: w.Minor})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := unix.Write(fd, []byte("on")); err != nil {
		t.Error(err)
	}
	wantContent(t, dir+"/new", "on")
	wantContent(t, dir+"/f", "content")
	if n := c.Requests()["OPEN"]; n != 0 {
		t.Errorf("%d OPEN requests", n)
	}
}

// CASES 16: kernel overlayfs takes a fork as its lower directory. CASES 62: as its upper it doesn't, and says so.
func TestCase16_KernelOverlay(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.Symlink("l", "f"), imagetest.File("f", "x", 0644), imagetest.Dir("u", 0755), imagetest.Dir("w", 0755))
	merged, upper, work := t.TempDir(), t.TempDir(), t.TempDir()
	err := unix.Mount("overlay", merged, "overlay", 0, "lowerdir="+dir+",upperdir="+upper+",workdir="+work)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(merged, unix.MNT_DETACH)
	if err := unix.Rename(merged+"/l", merged+"/moved"); err != nil {
		t.Errorf("mv of a symlink: %v", err)
	}
	write(t, merged+"/f", "changed")
	wantContent(t, merged+"/moved", "changed")
	wantContent(t, dir+"/f", "x")
	low := t.TempDir()
	err = unix.Mount("overlay", filepath.Join(low), "overlay", 0, "lowerdir="+low+",upperdir="+dir+"/u,workdir="+dir+"/w")
	if err != unix.EINVAL {
		unix.Unmount(low, unix.MNT_DETACH)
		t.Errorf("as an upper directory: %v, want EINVAL", err)
	}
}
