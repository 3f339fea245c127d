package fault

import (
	"io/fs"
	"os"
	"sync"

	"tine/snapshot/durable"
)

// Kind is a changing operation.
type Kind string

const (
	Create    Kind = "create" // OpenFile with O_CREATE or O_TRUNC
	Mkdir     Kind = "mkdir"
	Rename    Kind = "rename"
	Link      Kind = "link"
	Symlink   Kind = "symlink"
	Remove    Kind = "remove" // also RemoveAll
	Chmod     Kind = "chmod"
	SyncDir   Kind = "syncdir"
	Write     Kind = "write" // also WriteAt
	Truncate  Kind = "truncate"
	Sync      Kind = "sync"
	Datasync  Kind = "datasync"
	Allocate  Kind = "allocate"
	PunchHole Kind = "punch"
)

// Op is one operation, about to be done.
type Op struct {
	N    int // counted from 1
	Kind Kind
	Path string // the new one of a Rename or Link
	Old  string // of a Rename or Link
	Off  int64
	Len  int64
}

// When says how much of its effect a failing operation has.
type When int

const (
	Before When = iota // none
	Half               // a write writes its first half; for others as Before
	After              // all of it
)

// FS wraps a durable.FS.
type FS struct {
	inner durable.FS

	mu     sync.Mutex
	n      int
	at     int // fail operation at, 0 for none
	sticky bool
	when   When
	err    error
	match  func(Op) error
	failed bool
	rec    *Recording
}

// New wraps inner and fails nothing yet.
func New(inner durable.FS) *FS { return &FS{inner: inner} }

// FailAt makes the n-th operation from now on fail with err (a syscall.Errno), and none after it.
func (f *FS) FailAt(n int, when When, err error) { f.set(n, when, err, false) }

// FailFrom makes the n-th operation from now on and all later ones fail, as a broken or full disk does.
func (f *FS) FailFrom(n int, when When, err error) { f.set(n, when, err, true) }

func (f *FS) set(n int, when When, err error, sticky bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.when, f.err, f.sticky, f.failed = f.n+n, when, err, sticky, false
}

// FailIf asks match before each operation; an error from it is the operation's, which then has no effect. A nil match
// ends that.
func (f *FS) FailIf(match func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.match = match
}

// Heal ends all failures.
func (f *FS) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.match = 0, nil
}

// Count is how many operations there were.
func (f *FS) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// Failed reports whether an operation failed since FailAt or FailFrom.
func (f *FS) Failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// do runs one operation under mu. half, when not nil, has half of its effect. done records it after a full effect.
func (f *FS) do(op Op, effect func() error, half func() error, done func(r *Recording)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	op.N = f.n
	if f.match != nil {
		if err := f.match(op); err != nil {
			f.failed = true
			return &fs.PathError{Op: string(op.Kind), Path: op.Path, Err: err}
		}
	}
	if f.at == 0 || f.n < f.at || f.n > f.at && !f.sticky {
		err := effect()
		if err == nil && f.rec != nil && done != nil {
			done(f.rec)
		}
		return err
	}
	f.failed = true
	switch {
	case f.when == Half && half != nil:
		if err := half(); err != nil {
			return err
		}
	case f.when == After:
		if err := effect(); err != nil {
			return err
		}
		if f.rec != nil && done != nil {
			done(f.rec)
		}
	}
	return &fs.PathError{Op: string(op.Kind), Path: op.Path, Err: f.err}
}

// OpenFile implements durable.FS.
func (f *FS) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	var inner durable.File
	open := func() (err error) {
		inner, err = f.inner.OpenFile(name, flag, perm)
		return err
	}
	var err error
	if flag&(os.O_CREATE|os.O_TRUNC) == 0 {
		err = open()
	} else {
		err = f.do(Op{Kind: Create, Path: name}, open, nil, func(r *Recording) { r.opened(name, flag, perm) })
		if err != nil && inner != nil {
			inner.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	w := &file{File: inner, fs: f, append: flag&os.O_APPEND != 0}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rec != nil {
		w.id = f.rec.lookup(name)
	}
	return w, nil
}

// Mkdir implements durable.FS.
func (f *FS) Mkdir(name string, perm fs.FileMode) error {
	return f.do(Op{Kind: Mkdir, Path: name}, func() error { return f.inner.Mkdir(name, perm) }, nil,
		func(r *Recording) { r.mkdir(name, perm) })
}

// MkdirAll implements durable.FS; it is one operation.
func (f *FS) MkdirAll(name string, perm fs.FileMode) error {
	return f.do(Op{Kind: Mkdir, Path: name}, func() error { return f.inner.MkdirAll(name, perm) }, nil,
		func(r *Recording) { r.mkdirAll(name, perm) })
}

// Rename implements durable.FS.
func (f *FS) Rename(oldname, newname string) error {
	return f.do(Op{Kind: Rename, Path: newname, Old: oldname}, func() error { return f.inner.Rename(oldname, newname) }, nil,
		func(r *Recording) { r.rename(oldname, newname) })
}

// Link implements durable.FS.
func (f *FS) Link(oldname, newname string) error {
	return f.do(Op{Kind: Link, Path: newname, Old: oldname}, func() error { return f.inner.Link(oldname, newname) }, nil,
		func(r *Recording) { r.link(oldname, newname) })
}

// Symlink implements durable.FS.
func (f *FS) Symlink(target, newname string) error {
	return f.do(Op{Kind: Symlink, Path: newname}, func() error { return f.inner.Symlink(target, newname) }, nil,
		func(r *Recording) { r.symlink(target, newname) })
}

// Remove implements durable.FS.
func (f *FS) Remove(name string) error {
	return f.do(Op{Kind: Remove, Path: name}, func() error { return f.inner.Remove(name) }, nil,
		func(r *Recording) { r.remove(name) })
}

// RemoveAll implements durable.FS; it is one operation.
func (f *FS) RemoveAll(name string) error {
	return f.do(Op{Kind: Remove, Path: name}, func() error { return f.inner.RemoveAll(name) }, nil,
		func(r *Recording) { r.remove(name) })
}

// Chmod implements durable.FS.
func (f *FS) Chmod(name string, perm fs.FileMode) error {
	return f.do(Op{Kind: Chmod, Path: name}, func() error { return f.inner.Chmod(name, perm) }, nil,
		func(r *Recording) { r.chmod(name, perm) })
}

// SyncDir implements durable.FS.
func (f *FS) SyncDir(name string) error {
	return f.do(Op{Kind: SyncDir, Path: name}, func() error { return f.inner.SyncDir(name) }, nil,
		func(r *Recording) { r.syncDir(name) })
}

// ReadDir implements durable.FS.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) { return f.inner.ReadDir(name) }

// Stat implements durable.FS.
func (f *FS) Stat(name string) (fs.FileInfo, error) { return f.inner.Stat(name) }

// Lstat implements durable.FS.
func (f *FS) Lstat(name string) (fs.FileInfo, error) { return f.inner.Lstat(name) }
