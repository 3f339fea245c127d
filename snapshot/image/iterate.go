package image

import (
	"fmt"
	"runtime/debug"

	"tine/snapshot/content"
)

// EachNode yields the tree's nodes by ascending number until yield returns false.
func (m *Image) EachNode(yield func(Node) bool) error {
	var at cursor
	batch := make([]Node, 0, readBatch)
	for {
		var err error
		if batch, err = m.nodeBatch(&at, batch[:0]); err != nil || len(batch) == 0 {
			return err
		}
		for i := range batch {
			if !yield(batch[i]) {
				return nil
			}
		}
	}
}

// cursor is a place in the node records of both files.
type cursor struct{ base, delta uint64 }

func (m *Image) nodeBatch(at *cursor, batch []Node) (_ []Node, err error) {
	v, err := m.view()
	if err != nil {
		return nil, err
	}
	defer v.guard(debug.SetPanicOnFault(true), &err)
	for len(batch) < cap(batch) {
		f, rec := v.next(at)
		if f == nil {
			break
		}
		batch = append(batch, f.node(rec))
	}
	return batch, nil
}

// next returns the record of the node at the cursor and moves on; nil at the end.
func (v *view) next(at *cursor) (*file, []byte) {
	for {
		var b, d []byte
		if at.base < v.base.sections[secNodes].n {
			b = v.base.rec(secNodes, at.base)
		}
		if v.delta != nil && at.delta < v.delta.sections[secNodes].n {
			d = v.delta.rec(secNodes, at.delta)
		}
		switch {
		case b == nil && d == nil:
			return nil, nil
		case d == nil || b != nil && le.Uint64(b) < le.Uint64(d):
			at.base++
			return v.base, b
		}
		if b != nil && le.Uint64(b) == le.Uint64(d) {
			at.base++
		}
		at.delta++
		if le.Uint32(d[92:])&nodeWhiteout == 0 {
			return v.delta, d
		}
	}
}

// EachContent yields every content that a node of the tree has, once each, in no particular order.
func (m *Image) EachContent(yield func(ContentRef) bool) error {
	refs, err := m.contents()
	if err != nil {
		return err
	}
	for _, ref := range refs {
		if !yield(ref) {
			return nil
		}
	}
	return nil
}

func (m *Image) contents() (refs []ContentRef, err error) {
	v, err := m.view()
	if err != nil {
		return nil, err
	}
	defer v.guard(debug.SetPanicOnFault(true), &err)
	inDelta := map[content.ID]bool{}
	used := [2][]uint64{make([]uint64, v.base.sections[secContents].n/64+1), nil}
	if v.delta != nil {
		used[1] = make([]uint64, v.delta.sections[secContents].n/64+1)
	}
	var at cursor
	for {
		f, rec := v.next(&at)
		if f == nil {
			break
		}
		c := le.Uint32(rec[36:])
		if c == 0 || typeOf(le.Uint32(rec[16:])) == typeDir {
			continue
		}
		c--
		f.contentRec(c) // refuses what is behind the table's end
		set := used[0]
		if f != v.base {
			set = used[1]
		}
		set[c/64] |= 1 << (c % 64)
	}
	each := func(f *file, used []uint64, add func(ContentRef)) {
		for c := range f.sections[secContents].n {
			if used[c/64]&(1<<(c%64)) != 0 {
				add(decodeContentRef(f.contentRec(uint32(c))))
			}
		}
	}
	if v.delta != nil {
		each(v.delta, used[1], func(r ContentRef) { inDelta[r.ID] = true; refs = append(refs, r) })
	}
	each(v.base, used[0], func(r ContentRef) {
		if !inDelta[r.ID] {
			refs = append(refs, r)
		}
	})
	return refs, nil
}

// ContentOf returns where the content of a file or symlink comes from.
func (m *Image) ContentOf(ino uint64) (ref ContentRef, err error) {
	v, err := m.view()
	if err != nil {
		return ref, err
	}
	defer v.guard(debug.SetPanicOnFault(true), &err)
	f, rec := v.find(ino)
	if f == nil {
		return ref, ErrNotExist
	}
	if c := le.Uint32(rec[36:]); c != 0 && typeOf(le.Uint32(rec[16:])) != typeDir {
		return decodeContentRef(f.contentRec(c - 1)), nil
	}
	return ref, nil
}

// EachChange yields what a delta says beside its base: nodes that are set or removed, and names that are set or
// removed, by ascending number, and directory and name. The base form has none. Either function may be nil.
func (m *Image) EachChange(node func(ino uint64, removed bool) bool, name func(dir uint64, name string, ino uint64) bool) error {
	v, err := m.view()
	if err != nil || v.delta == nil {
		return err
	}
	d := &Delta{nodes: map[uint64]*Node{}, names: map[uint64]map[string]uint64{}, kinds: map[content.ID]ContentRef{}}
	if err := v.load(d); err != nil {
		return err
	}
	if node != nil {
		for _, ino := range sortedKeys(d.nodes) {
			if !node(ino, d.nodes[ino] == nil) {
				return nil
			}
		}
	}
	if name != nil {
		for _, dir := range sortedKeys(d.names) {
			for _, s := range sortedKeys(d.names[dir]) {
				if !name(dir, s, d.names[dir][s]) {
					return nil
				}
			}
		}
	}
	return nil
}

// Builder returns a Builder that holds the image's tree, with where its contents come from: the way to flatten a
// delta.
func (m *Image) Builder() (*Builder, error) {
	b := NewBuilder(m.Format())
	b.SetNextIno(m.NextIno())
	inodes := uint64(0)
	var dirs []uint64
	err := m.EachNode(func(n Node) bool {
		inodes++
		b.Add(n)
		if n.IsDir() {
			dirs = append(dirs, n.Ino)
		}
		return b.err == nil
	})
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		err := m.ReadDir(dir, 0, func(d Dirent) bool {
			b.AddEntry(dir, d.Name, d.Ino)
			return b.err == nil
		})
		if err != nil {
			return nil, fmt.Errorf("directory %d: %w", dir, err)
		}
	}
	err = m.EachContent(func(r ContentRef) bool {
		b.SetKind(r.ID, r.Kind, r.Aux)
		return true
	})
	return b, err
}
