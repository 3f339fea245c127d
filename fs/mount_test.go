package fs_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine/fs"
	"tine/snapshot/image/imagetest"
)

func TestMountShowsBase(t *testing.T) {
	for _, classic := range []bool{false, true} {
		f := newFork(t, imagetest.File("d/a", "hello\n", 0644), imagetest.Symlink("l", "d/a"))
		s := newServer(t)
		dir, w := mount(t, s, f.fork, fs.MountOptions{Classic: classic})
		b, err := os.ReadFile(filepath.Join(dir, "l"))
		if err != nil || string(b) != "hello\n" {
			t.Fatalf("%q, %v", b, err)
		}
		list, err := fs.Mountpoints()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, m := range list {
			found = found || m.Path == dir && m.Source == "tine" && m.Minor == w.Minor
		}
		if !found {
			t.Errorf("%s is not in %v", dir, list)
		}
		info, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(info) {
			if !bytes.Contains(line, []byte(dir)) {
				continue
			}
			for _, opt := range []string{"nosuid", "nodev", "default_permissions", "allow_other"} {
				if !bytes.Contains(line, []byte(opt)) {
					t.Errorf("no %s in %s", opt, line)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "d")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after Close: %v", err)
		}
		if n, err := fs.Waiting(w.Minor); err == nil {
			t.Errorf("the connection still exists, %d waiting", n)
		}
	}
}

// OPEN, OPENDIR and FLUSH are settled before anybody can reach the mount, and are never asked for again.
func TestProbeSettlesOpen(t *testing.T) {
	dir, w, _ := workspace(t, imagetest.File("a", "x", 0644))
	for range 3 {
		if _, err := os.ReadFile(filepath.Join(dir, "a")); err != nil {
			t.Fatal(err)
		}
		if _, err := os.ReadDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	got := w.Conn.Requests()
	for _, op := range []string{"OPEN", "OPENDIR", "POLL", "FLUSH"} {
		if got[op] != 1 {
			t.Errorf("%d %s requests, want the probe's one; all: %v", got[op], op, got)
		}
	}
	for _, op := range []string{"RELEASE", "RELEASEDIR"} {
		if got[op] != 0 {
			t.Errorf("%d %s requests", got[op], op)
		}
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Errorf("the probe left something: %v, %v", list, err)
	}
}

func TestAttachRefusals(t *testing.T) {
	f := newFork(t)
	s := newServer(t)
	dir, _ := mount(t, s, f.fork, fs.MountOptions{})
	g := newFork(t)
	w, err := s.Mount(context.Background(), g.fork, fs.MountOptions{}, fs.ConnOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Attach(dir); !errors.Is(err, fs.ErrBusy) {
		t.Errorf("on a mount: %v", err)
	}
	if err := w.Attach(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrMountPoint) || !errors.Is(err, unix.ENOENT) {
		t.Errorf("missing: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	os.WriteFile(file, nil, 0644)
	if err := w.Attach(file); !errors.Is(err, fs.ErrMountPoint) || !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file: %v", err)
	}
}

func TestUnmountLeavesForeignMountsAlone(t *testing.T) {
	dir, w, _ := workspace(t)
	other := t.TempDir()
	if err := fs.Unmount(other); !errors.Is(err, fs.ErrNotMounted) {
		t.Errorf("no mount: %v", err)
	}
	if err := unix.Mount("none", other, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(other, unix.MNT_DETACH)
	if err := fs.Unmount(other); !errors.Is(err, fs.ErrNotMounted) {
		t.Errorf("a foreign mount: %v", err)
	}
	if err := fs.Unmount(dir); err != nil {
		t.Fatal(err)
	}
	w.Mounted.Close()
	select {
	case <-w.Conn.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("the session goes on after its mount went away")
	}
	if err := w.Conn.Wait(); err != nil {
		t.Error(err)
	}
}

// A mount that nobody serves must not hang whoever cleans up.
func TestUnservedMountIsClosed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	m, err := fs.Mount(context.Background(), fs.MountOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := m.Attach(dir); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(m.Detach(), m.Close()) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("hangs")
	}
}

func TestServeRefusesStaleDescriptor(t *testing.T) {
	f := newFork(t)
	s := newServer(t)
	m, err := fs.Mount(context.Background(), fs.MountOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	fs.Abort(m.Minor)
	dev := m.Dev
	m.Dev = -1
	if _, err := s.Serve(context.Background(), dev, nil, f.fork, fs.ConnOptions{Timeout: time.Second}); err == nil {
		t.Fatal("an aborted connection is served")
	}
}

// Mounts that come and go, and such that fail, leave no descriptor, mount or connection.
func TestO6_NothingIsLeft(t *testing.T) {
	s := newServer(t)
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	f := newFork(t, imagetest.File("a", "x", 0644))
	dir := t.TempDir()
	cycle := func(classic bool) {
		w, err := s.Mount(context.Background(), f.fork, fs.MountOptions{Classic: classic}, fs.ConnOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Attach(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := os.ReadFile(dir + "/a"); err != nil {
			t.Error(err)
		}
		if err := w.Attach(dir); err == nil {
			t.Error("attached twice")
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	cycle(false)
	cycle(true)
	before := count()
	for i := range 30 {
		cycle(i%2 == 0)
		m, err := fs.Mount(context.Background(), fs.MountOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := s.Serve(ctx, m.Dev, nil, f.fork, fs.ConnOptions{}); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		m.Dev = -1
		m.Close()
		if _, err := s.Mount(ctx, f.fork, fs.MountOptions{}, fs.ConnOptions{}); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
	within(t, 5*time.Second, "descriptors are closed", func() bool { return count() <= before })
	list, err := fs.Mountpoints()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if m.Path == dir {
			t.Errorf("still mounted: %v", m)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "tine-mount-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
