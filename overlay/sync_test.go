package overlay

import (
	"io/fs"
	"path/filepath"
	"testing"

	"tine/snapshot/durable"
)

// hookFS calls a function after each fdatasync.
type hookFS struct {
	durable.FS
	synced func(name string)
}

func (h *hookFS) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	f, err := h.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return hookFile{f, h}, nil
}

type hookFile struct {
	durable.File
	h *hookFS
}

func (f hookFile) Datasync() error {
	err := f.File.Datasync()
	if f.h.synced != nil {
		f.h.synced(filepath.Base(f.Name()))
	}
	return err
}

// TestO3_SyncCoversOnlyWhatItBeganWith: a block that is written while a sync runs is not taken for synced, though the
// mark comes after its record.
func TestO3_SyncCoversOnlyWhatItBeganWith(t *testing.T) {
	e := newEnv(t, sampleTree())
	e.close()
	h := &hookFS{FS: durable.OS}
	e.cfg.FS = h
	e.open()
	ino := e.put(1, "f", "")
	block := make([]byte, 100_000)
	write := func(off int64) {
		_, err := e.f.Write(root, ino, block, off, false)
		e.must(err)
	}
	write(0)
	syncs := 0
	h.synced = func(name string) {
		if name != "data" {
			return
		}
		if syncs++; syncs == 1 {
			write(200_000) // between the blocks' sync and the mark
		}
	}
	e.must(e.f.Fsync(ino, false))
	e.must(e.f.Fsync(ino, false))
	if syncs != 2 {
		t.Fatalf("data synced %d times for two blocks", syncs)
	}
	e.must(e.f.Fsync(ino, false))
	if syncs != 2 {
		t.Fatal("synced again for nothing")
	}
}

// TestO3_RotationDoesNotWaitForASync rotates while a sync is in its fdatasync; both succeed, and what was written
// before the sync began is durable.
func TestO3_RotationDoesNotWaitForASync(t *testing.T) {
	e := newEnv(t, sampleTree())
	e.close()
	h := &hookFS{FS: durable.OS}
	e.cfg.FS = h
	e.open()
	ino := e.put(1, "f", "")
	_, err := e.f.Write(root, ino, make([]byte, 100_000), 0, false)
	e.must(err)
	done := false
	h.synced = func(name string) {
		if name == "data" && !done {
			done = true
			id := NewLayerID()
			v, err := e.f.Rotate(id)
			e.must(err)
			e.must(v.Close())
			e.cfg.Layers = append(e.cfg.Layers, id)
			e.put(1, "later", "x")
		}
	}
	e.must(e.f.Fsync(ino, false))
	if !done {
		t.Fatal("no sync")
	}
	e.must(e.f.Fsync(ino, false))
	e.reopenSame()
}

func (e *env) reopenSame() {
	e.t.Helper()
	want := e.dump()
	e.reopen()
	if got := e.dump(); got != want {
		e.t.Fatalf("before\n%s\nafter\n%s", want, got)
	}
}
