package image

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"tine/snapshot/content"
	"tine/snapshot/durable"
)

// ErrClosed is returned by every method of an Image that was closed.
var ErrClosed = errors.New("tree image is closed")

// Image is an open tree image, alone or over its base. It implements Tree, and is safe for concurrent use.
type Image struct{ v atomic.Pointer[view] }

// view is what an Image shows: a base, or a delta over it.
type view struct {
	base  *file
	delta *file // nil in the base form
}

var _ Tree = (*Image)(nil)

// Open maps the image at path. A delta needs the image that it was made over, in the base form; it shares base's
// mapping, so that base may be closed afterwards. Pages are checked when they are first read.
func Open(fsys durable.FS, path string, base *Image) (*Image, error) {
	f, err := openFile(fsys, path)
	if err != nil {
		return nil, err
	}
	v := &view{base: f}
	if f.h.form == formDelta {
		if base == nil {
			return nil, fmt.Errorf("tree image %s is a delta over %x and was opened without it", path, f.h.base)
		}
		bv, err := base.view()
		if err != nil {
			return nil, err
		}
		if bv.delta != nil || bv.base.h.id.sum() != f.h.base || bv.base.h.format != f.h.format {
			return nil, fmt.Errorf("tree image %s is a delta over %x, not over %s", path, f.h.base, bv.base.path)
		}
		v = &view{base: bv.base, delta: f}
	}
	m := &Image{}
	m.v.Store(v)
	return m, nil
}

// BaseOf returns the checkpoint id (hex) of the image that the delta at path was made over, "" for the base form.
func BaseOf(fsys durable.FS, path string) (string, error) {
	f, err := openFile(fsys, path)
	if err != nil || f.h.form == formBase {
		return "", err
	}
	return fmt.Sprintf("%x", f.h.base), nil
}

// Close makes all further calls fail with ErrClosed. The memory map is given back once calls in progress have
// returned and no delta shares it; closing is optional, and an Image that is dropped closes itself.
func (m *Image) Close() error {
	m.v.Store(nil)
	return nil
}

func (m *Image) view() (*view, error) {
	if v := m.v.Load(); v != nil {
		return v, nil
	}
	return nil, ErrClosed
}

// top is the file whose header counts for the tree.
func (v *view) top() *file {
	if v.delta != nil {
		return v.delta
	}
	return v.base
}

// guard is file.guard for either file.
func (v *view) guard(old bool, err *error) {
	debug.SetPanicOnFault(old)
	if r := recover(); r != nil {
		f := v.top()
		if a, ok := r.(interface{ Addr() uintptr }); ok && v.base.maps(a.Addr()) {
			f = v.base
		}
		*err = f.recovered(r)
	}
}

// Node implements Tree.
func (m *Image) Node(ino uint64) (n Node, err error) {
	v, err := m.view()
	if err != nil {
		return n, err
	}
	defer v.guard(debug.SetPanicOnFault(true), &err)
	f, rec := v.find(ino)
	if f == nil {
		return n, ErrNotExist
	}
	return f.node(rec), nil
}

// find returns a node's record and the file that it is in, nil if the tree has no such node.
func (v *view) find(ino uint64) (*file, []byte) {
	if v.delta != nil {
		if rec, ok := v.delta.nodeRec(ino); ok {
			if le.Uint32(rec[92:])&nodeWhiteout != 0 {
				return nil, nil
			}
			return v.delta, rec
		}
	}
	if rec, ok := v.base.nodeRec(ino); ok {
		return v.base, rec
	}
	return nil, nil
}

// listing is a directory in both files.
type listing struct {
	ino         uint64
	base, delta dirRec
	live        uint32
}

// list finds a directory.
func (v *view) list(ino uint64) (l listing, ok bool) {
	l.ino = ino
	l.base, ok = v.base.dirByNode(ino)
	l.live = l.base.live
	if v.delta != nil {
		d, changed := v.delta.dirBySearch(ino)
		if changed {
			l.delta, l.live = d, d.live
		}
		// Only the delta's node tells a removed directory, or a new one that is empty.
		if rec, has := v.delta.nodeRec(ino); has {
			ok = le.Uint32(rec[92:])&nodeWhiteout == 0 && typeOf(le.Uint32(rec[16:])) == typeDir
		}
	}
	return l, ok
}

// Lookup implements Tree. It doesn't allocate: the entry's name is the caller's.
func (m *Image) Lookup(dir uint64, name string) (d Dirent, err error) {
	v, err := m.view()
	if err != nil {
		return d, err
	}
	defer v.guard(debug.SetPanicOnFault(true), &err)
	l, ok := v.list(dir)
	if !ok {
		return d, ErrNotExist
	}
	raw := bytesOf(name)
	f, pos := v.base, uint64(1)
	if l.delta.count > 0 {
		if i, found := v.delta.search(&l.delta, raw); found {
			at, in := v.base.search(&l.base, raw)
			if !in {
				at = uint64(l.base.count) + i
			}
			ino, _, typ := v.delta.entry(l.delta.first + i)
			if typ == typeWhiteout {
				return d, ErrNotExist
			}
			v.checkDirectory(v.delta, l.delta.first+i, dir, ino, typ)
			return Dirent{Name: name, Ino: ino, Pos: pos + at, Type: typ}, nil
		}
	}
	i, found := f.search(&l.base, raw)
	if !found {
		return d, ErrNotExist
	}
	ino, _, typ := f.entry(l.base.first + i)
	v.checkDirectory(f, l.base.first+i, dir, ino, typ)
	return Dirent{Name: name, Ino: ino, Pos: pos + i, Type: typ}, nil
}

// checkDirectory refuses an entry of a directory that isn't the one name of its node, whose record says which that
// is. So no directory can be reached in two ways, let alone from inside itself, and every walk ends.
func (v *view) checkDirectory(f *file, entry, dir, ino uint64, typ uint8) {
	if typ != typeDir {
		return
	}
	want := uint32(entry + 1)
	if v.delta != nil {
		if rec, ok := v.delta.nodeRec(ino); ok {
			got := le.Uint32(rec[32:])
			if f == v.base && got == 0 {
				if rec, ok := v.base.nodeRec(ino); ok {
					got = le.Uint32(rec[32:])
				}
			} else if f == v.base {
				got = 0
			}
			v.checkName(rec, dir, ino, got == want)
			return
		}
		if f == v.delta {
			v.checkName(nil, dir, ino, false)
		}
	}
	rec, ok := v.base.nodeRec(ino)
	v.checkName(rec, dir, ino, ok && le.Uint32(rec[32:]) == want)
}

func (v *view) checkName(rec []byte, dir, ino uint64, named bool) {
	if !named || ino == Root || typeOf(le.Uint32(rec[16:])) != typeDir || le.Uint64(rec[8:]) != dir ||
		le.Uint32(rec[92:])&nodeWhiteout != 0 {
		v.top().damaged("directory %d is named in directory %d, which its node doesn't say", ino, dir)
	}
}

// NumEntries implements Tree.
func (m *Image) NumEntries(dir uint64) (n int, err error) {
	v, err := m.view()
	if err != nil {
		return 0, err
	}
	defer v.guard(debug.SetPanicOnFault(true), &err)
	l, ok := v.list(dir)
	if !ok {
		return 0, ErrNotExist
	}
	return int(l.live), nil
}

// NextIno implements Tree.
func (m *Image) NextIno() uint64 { return m.header().nextIno }

// Counts implements Tree.
func (m *Image) Counts() (inodes, bytes uint64) {
	h := m.header()
	return h.inodes, h.bytes
}

// NumNodes counts the tree's inodes.
func (m *Image) NumNodes() uint64 { return m.header().inodes }

// NumNames counts the entries of all directories.
func (m *Image) NumNames() uint64 { return m.header().entries }

// Format is the git object format that names small contents.
func (m *Image) Format() content.ObjectFormat { return m.header().format }

// Identity is the tree's; for a delta, that of the tree with the delta applied.
func (m *Image) Identity() Identity { return m.header().id }

// IsDelta reports whether the image is in the delta form.
func (m *Image) IsDelta() bool { return m.header().form == formDelta }

// Changes counts a delta's node and entry records, 0 in the base form. When it is more than an eighth of the base's
// NumNodes and NumNames, the tree is better written anew (DESIGN "tree image").
func (m *Image) Changes() uint64 {
	v := m.v.Load()
	if v == nil || v.delta == nil {
		return 0
	}
	return v.delta.sections[secNodes].n + v.delta.sections[secEntries].n
}

// header is decoded memory, not mapped; a closed image has an empty one.
func (m *Image) header() *header {
	if v := m.v.Load(); v != nil {
		return v.top().h
	}
	return &header{}
}

// validName is checkName for names in a file.
func (f *file) validName(dir uint64, name, before []byte) {
	if checkName(name) != nil {
		f.damaged("directory %d has an entry %q", dir, name)
	}
	if before != nil && bytes.Compare(before, name) >= 0 {
		f.damaged("directory %d isn't sorted at %q", dir, name)
	}
}
