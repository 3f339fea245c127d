package registry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tine/overlay"
	"tine/snapshot/durable"
)

// Registry reads and changes a store's list of forks.
type Registry struct {
	fs   durable.FS
	path string

	mu   sync.Mutex
	t    *table
	off  int64       // bytes of the file that t has
	line int         // lines
	file os.FileInfo // the file that they were read from
	room int64       // blocks are reserved up to here; 0 is unknown
}

// Open returns the registry in the file path. Nothing is made or read yet.
func Open(fsys durable.FS, path string) *Registry {
	if fsys == nil {
		fsys = durable.OS
	}
	return &Registry{fs: fsys, path: path, t: newTable()}
}

// refresh reads what was appended since the last time. tail is where the valid lines end. r.mu is held.
func (r *Registry) refresh() (tail, size int64, err error) {
	f, err := r.fs.OpenFile(r.path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		r.t, r.off, r.line, r.file = newTable(), 0, 0, nil
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	if r.file == nil || !os.SameFile(st, r.file) || st.Size() < r.off {
		r.t, r.off, r.line, r.file, r.room = newTable(), 0, 0, st, 0
	}
	size = st.Size()
	b := make([]byte, size-r.off)
	if n, err := f.ReadAt(b, r.off); n < len(b) {
		return 0, 0, fmt.Errorf("reading %s: %w", r.path, errors.Join(err, io.ErrUnexpectedEOF))
	}
	for {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		if !whole {
			return r.off, size, nil
		}
		rec, err := decode(line)
		if err == nil {
			err = r.t.apply(rec)
		}
		if err != nil {
			return 0, 0, r.corrupt(rest, err)
		}
		r.off += int64(len(line)) + 1
		r.line++
		b = rest
	}
}

// corrupt is the error of a bad line. The table is read anew the next time.
func (r *Registry) corrupt(rest []byte, err error) error {
	e := &CorruptError{Path: r.path, Line: r.line + 1, Why: err.Error()}
	r.file = nil
	return e
}

// List returns all forks in the order of their creation.
func (r *Registry) List() ([]Fork, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, _, err := r.refresh(); err != nil {
		return nil, err
	}
	list := make([]Fork, 0, len(r.t.forks))
	for _, id := range r.t.order {
		if f := r.t.forks[id]; f != nil {
			list = append(list, f.clone())
		}
	}
	return list, nil
}

// Get returns the fork with this name, id, or unique beginning of an id. A name wins over a beginning.
func (r *Registry) Get(ref string) (Fork, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, _, err := r.refresh(); err != nil {
		return Fork{}, err
	}
	f, err := r.t.find(ref)
	if err != nil {
		return Fork{}, err
	}
	return f.clone(), nil
}

func (t *table) find(ref string) (*Fork, error) {
	if id, ok := t.names[ref]; ok && ref != "" {
		return t.forks[id], nil
	}
	if f := t.forks[ref]; f != nil {
		return f, nil
	}
	if ref == "" || strings.Trim(ref, "0123456789abcdef") != "" {
		return nil, &NotFoundError{Ref: ref}
	}
	var ids []string
	for id := range t.forks {
		if strings.HasPrefix(id, ref) {
			ids = append(ids, id)
		}
	}
	switch len(ids) {
	case 0:
		return nil, &NotFoundError{Ref: ref}
	case 1:
		return t.forks[ids[0]], nil
	}
	slices.Sort(ids)
	return nil, &AmbiguousError{Prefix: ref, IDs: ids}
}

// Create records new forks, all or none. Id, first layer, state and time are filled in where they are missing; names
// must be free. The forks are returned as recorded.
func (r *Registry) Create(forks ...Fork) ([]Fork, error) {
	out := make([]Fork, 0, len(forks))
	err := r.change(func(t *table) ([]*record, error) {
		var recs []*record
		out = out[:0]
		for _, f := range forks {
			f = f.clone()
			if f.ID == "" {
				f.ID = NewID()
			}
			if len(f.Layers) == 0 {
				f.Layers = []overlay.LayerID{overlay.NewLayerID()}
			}
			if f.State == "" {
				f.State = Ready
			}
			if f.Created.IsZero() {
				f.Created = time.Now().UTC()
			}
			if t.forks[f.ID] != nil {
				return nil, fmt.Errorf("fork %s exists already", f.ID)
			}
			rec := t.putRecord(&f)
			if err := t.apply(rec); err != nil {
				return nil, err
			}
			recs = append(recs, rec)
			out = append(out, f)
		}
		return recs, nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Update changes a fork's record (name, limits, labels, state, …). The id stays. A reset changes Base, Layers and
// Generation here.
func (r *Registry) Update(id string, change func(*Fork) error) (Fork, error) {
	var out Fork
	err := r.change(func(t *table) ([]*record, error) {
		old := t.forks[id]
		if old == nil {
			return nil, &NotFoundError{Ref: id}
		}
		f := old.clone()
		if err := change(&f); err != nil {
			return nil, err
		}
		f.ID = id
		out = f
		rec := t.putRecord(&f)
		return []*record{rec}, t.apply(rec)
	})
	return out, err
}

// Rotate records that a fork goes on in another layer. It comes before overlay.Fork.Rotate: a layer that is recorded
// and has no files is empty, one that has files and isn't recorded would be lost.
func (r *Registry) Rotate(id string, layer overlay.LayerID) error {
	return r.change(func(t *table) ([]*record, error) {
		if t.forks[id] == nil {
			return nil, &NotFoundError{Ref: id}
		}
		rec := &record{Seq: t.seq, Op: opRotate, ID: id, Layer: &layer}
		return []*record{rec}, t.apply(rec)
	})
}

// Remove forgets a fork. Its layers are the caller's to remove, where no other fork has them.
func (r *Registry) Remove(id string) error {
	return r.change(func(t *table) ([]*record, error) {
		if t.forks[id] == nil {
			return nil, &NotFoundError{Ref: id}
		}
		rec := &record{Seq: t.seq, Op: opRemove, ID: id}
		return []*record{rec}, t.apply(rec)
	})
}

const (
	// The registry keeps room behind its end, so that forks can be removed when the disk is full: reserve (64 KiB) and
	// reserveFork (1 KiB) for the two records that each one's removal takes. It is asked for in steps of reserve.
	reserve     = 64 << 10
	reserveFork = 1 << 10
)

// frees reports that all records are steps of removals, which may use the reserve.
func frees(recs []*record) bool {
	for _, rec := range recs {
		if rec.Op != opRemove && (rec.Fork == nil || rec.Fork.State != Removing) {
			return false
		}
	}
	return true
}

// makeRoom reserves blocks for n bytes at tail and, unless they free space themselves, for later removals.
func (r *Registry) makeRoom(f durable.File, tail, n int64, freeing bool) error {
	keep := n + reserve + reserveFork*int64(len(r.t.forks))
	if freeing || tail+keep <= r.room {
		return nil
	}
	err := f.Reserve(tail, keep+reserve)
	switch {
	case errors.Is(err, unix.ENOSPC):
		return err
	case err == nil:
		r.room = tail + keep + reserve
	}
	return nil // where blocks can't be reserved, the write says what there is
}

// change appends the records that plan makes of the present table and has applied to it.
func (r *Registry) change(plan func(*table) ([]*record, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	lock, err := durable.Lock(r.path+".lock", durable.Exclusive)
	if err != nil {
		return fmt.Errorf("locking the forks' registry: %w", err)
	}
	defer lock.Unlock()
	tail, size, err := r.refresh()
	if err != nil {
		return err
	}
	var recs []*record
	if tail == 0 {
		r.t = newTable()
		h := &record{Op: opHeader, Version: version}
		if err := r.t.apply(h); err != nil {
			return err
		}
		recs = append(recs, h)
	}
	more, err := plan(r.t)
	if err == nil {
		err = r.append(append(recs, more...), tail, size)
	}
	if err != nil {
		r.file = nil // plan may have applied a part
		return err
	}
	return nil
}

// append writes lines behind the valid ones. r.mu and the lock file are held.
func (r *Registry) append(recs []*record, tail, size int64) error {
	var b []byte
	for _, rec := range recs {
		line, err := rec.encode()
		if err != nil {
			return err
		}
		b = append(b, line...)
	}
	freeing := frees(recs)
	if r.t.weight > 4*len(r.t.forks)+1000 {
		if err := r.compact(); err == nil || !freeing {
			return err
		}
		// A shorter log needs room first; it can wait.
	}
	f, err := r.fs.OpenFile(r.path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if size > tail {
		r.room = 0
		if err := f.Truncate(tail); err != nil {
			return err
		}
	}
	if err := r.makeRoom(f, tail, int64(len(b)), freeing); err != nil {
		return err
	}
	if _, err := f.WriteAt(b, tail); err != nil {
		r.room = 0
		if terr := f.Truncate(tail); terr != nil {
			err = errors.Join(err, terr)
		}
		return err
	}
	if r.file == nil {
		if r.file, err = f.Stat(); err != nil {
			return err
		}
	}
	r.off, r.line = tail+int64(len(b)), r.line+len(recs)
	return nil
}

// compact replaces the log by one that has the present forks only.
func (r *Registry) compact() error {
	t := newTable()
	var b bytes.Buffer
	add := func(rec *record) error {
		line, err := rec.encode()
		if err == nil {
			b.Write(line)
			err = t.apply(rec)
		}
		return err
	}
	if err := add(&record{Op: opHeader, Version: version}); err != nil {
		return err
	}
	for _, id := range r.t.order {
		if f := r.t.forks[id]; f != nil {
			if err := add(t.putRecord(f)); err != nil {
				return err
			}
		}
	}
	if err := durable.WriteFile(r.fs, r.path, b.Bytes(), 0o644); err != nil {
		return err
	}
	r.file = nil // read anew
	return nil
}

// Sync makes all changes so far durable.
func (r *Registry) Sync() error {
	f, err := r.fs.OpenFile(r.path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.Datasync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = r.fs.SyncDir(filepath.Dir(r.path))
	}
	return err
}

// Layers maps every layer that a fork has to the number of forks that have it.
func (r *Registry) Layers() (map[overlay.LayerID]int, error) {
	list, err := r.List()
	if err != nil {
		return nil, err
	}
	m := map[overlay.LayerID]int{}
	for _, f := range list {
		for _, l := range f.Layers {
			m[l]++
		}
	}
	return m, nil
}
