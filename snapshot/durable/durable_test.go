package durable

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWriteFileReplacesAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, data := range []string{"one", "", "three"} {
		if err := WriteFile(OS, path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFile(OS, path)
		if err != nil || string(got) != data {
			t.Fatalf("got %q, %v; want %q", got, err, data)
		}
	}
	if ents, _ := os.ReadDir(dir); len(ents) != 1 {
		t.Fatalf("left behind: %v", ents)
	}
}

func TestWriteNewNeverReplaces(t *testing.T) {
	dir := t.TempDir()
	tmp := filepath.Join(dir, "tmp")
	if err := MkdirAll(OS, tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	w := Writer{FS: OS, Tmp: tmp}
	path := filepath.Join(dir, "a")
	if err := w.WriteNew(path, bytes.NewReader([]byte("first")), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteNew(path, bytes.NewReader([]byte("second")), 0o444); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("second: %v, want ErrExist", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "first" {
		t.Fatalf("got %q", got)
	}
	if ents, _ := os.ReadDir(tmp); len(ents) != 0 {
		t.Fatalf("left behind: %v", ents)
	}
}

func TestWriteFileThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "d") // a directory can't be replaced by a file
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(OS, path, []byte("x"), 0o644); err == nil {
		t.Fatal("no error")
	}
	if ents, _ := os.ReadDir(dir); len(ents) != 1 {
		t.Fatalf("left behind: %v", ents)
	}
}

func TestMkdirAll(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "a/b/c")
	for range 2 {
		if err := MkdirAll(OS, deep, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteFile(OS, filepath.Join(dir, "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := MkdirAll(OS, filepath.Join(dir, "f/x"), 0o755); !errors.Is(err, errNotDir) {
		t.Fatalf("below a file: %v", err)
	}
}

func TestLockModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	a, err := TryLock(path, Shared)
	if err != nil {
		t.Fatal(err)
	}
	b, err := TryLock(path, Shared)
	if err != nil {
		t.Fatalf("two shared holders: %v", err)
	}
	var locked *LockedError
	if _, err = TryLock(path, Exclusive); !errors.As(err, &locked) {
		t.Fatalf("exclusive beside shared: %v", err)
	}
	if locked.PID != os.Getpid() && locked.PID != 0 {
		t.Fatalf("holder %d, want %d", locked.PID, os.Getpid())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err = LockContext(ctx, path, Exclusive); !errors.As(err, &locked) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("timed out lock: %v", err)
	}
	got := make(chan error)
	go func() {
		l, err := Lock(path, Exclusive)
		if err == nil {
			err = l.Unlock()
		}
		got <- err
	}()
	a.Unlock()
	select {
	case err := <-got:
		t.Fatalf("exclusive while still shared: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	b.Unlock()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

func TestFileHolesAndSizes(t *testing.T) {
	f, err := OS.OpenFile(filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Allocate(0, 64<<10); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte{1}, 16<<10), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.PunchHole(0, 4<<10); err != nil {
		t.Fatal(err)
	}
	if err := f.Datasync(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8<<10)
	if _, err := f.ReadAt(buf, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(buf[:4<<10], make([]byte, 4<<10)) || buf[4<<10] != 1 {
		t.Fatal("the hole isn't where it should be")
	}
	if st, _ := f.Stat(); st.Size() != 64<<10 {
		t.Fatalf("size %d", st.Size())
	}
}
