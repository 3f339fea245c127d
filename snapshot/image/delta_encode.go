package image

import (
	"fmt"
	"runtime/debug"
)

// Encode checks the resulting tree and lays the delta out.
func (d *Delta) Encode() (*Encoded, error) {
	if d.err != nil {
		return nil, d.err
	}
	r, err := d.resolve()
	if err != nil {
		return nil, fmt.Errorf("make a delta image: %w", err)
	}
	v, err := d.base.view()
	if err != nil {
		return nil, err
	}
	if len(r.nodes) > maxRecords || len(r.entries) > maxRecords {
		return nil, fmt.Errorf("make a delta image: more than %d changes", uint32(maxRecords))
	}
	bh := v.base.h
	h := &header{form: formDelta, format: bh.format, base: bh.id.sum(), nextIno: d.nextIno}
	if err := d.totals(h, bh, r); err != nil {
		return nil, err
	}
	sections, err := d.sections(r)
	if err != nil {
		return nil, fmt.Errorf("make a delta image: %w", err)
	}

	// As in Builder.Encode, one trie on each core.
	done := make(chan error)
	go func() {
		var err error
		h.id.EntriesRoot, err = v.mergeEntries(r.entries)
		done <- err
	}()
	h.id.NodesRoot, err = v.mergeNodes(r.nodes)
	if eerr := <-done; err == nil {
		err = eerr
	}
	if err != nil {
		return nil, err
	}
	return layOut(h, sections), nil
}

// totals fills in the counts of the resulting tree.
func (d *Delta) totals(h, base *header, r *resolved) error {
	inodes, bytes, entries := int64(base.inodes), int64(base.bytes), int64(base.entries)
	for _, n := range r.nodes {
		if n.old != nil {
			inodes--
			if n.old.IsRegular() {
				bytes -= n.old.Size
			}
		}
		if n.new != nil {
			inodes++
			if n.new.IsRegular() {
				bytes += n.new.Size
			}
			if n.old == nil && n.ino >= h.nextIno {
				h.nextIno = n.ino + 1
			}
		}
	}
	for _, e := range r.entries {
		if e.old != 0 {
			entries--
		}
		if e.new != 0 {
			entries++
		}
	}
	if inodes < 1 || bytes < 0 || entries < 0 {
		return fmt.Errorf("make a delta image: the base counts %d nodes, %d bytes and %d entries, which can't be", base.inodes, base.bytes, base.entries)
	}
	h.inodes, h.bytes, h.entries = uint64(inodes), uint64(bytes), uint64(entries)
	return nil
}

// sections encodes the changes.
func (d *Delta) sections(r *resolved) (out [numSections][]byte, err error) {
	var dirs, entries, heap []byte
	named := map[uint64]uint32{} // directory -> 1 + the entry that names it
	lists := map[uint64]uint32{} // directory -> 1 + its record
	for at := 0; at < len(r.entries); {
		list := dirRec{ino: r.entries[at].dir, first: uint64(at), live: uint32(r.live[r.entries[at].dir])}
		for ; at < len(r.entries) && r.entries[at].dir == list.ino; at++ {
			e := &r.entries[at]
			typ := e.typ
			if e.new == 0 {
				typ = typeWhiteout
			} else if typ == typeDir {
				named[e.new] = uint32(at) + 1
			}
			entries = le.AppendUint64(entries, e.new)
			entries = le.AppendUint64(entries, packName(uint64(len(heap)), len(e.name), typ))
			heap = append(heap, e.name...)
		}
		list.count = uint32(uint64(at) - list.first)
		dirs = list.append(dirs)
		lists[list.ino] = uint32(len(dirs) / dirSize)
	}
	t := newTables()
	nodes := make([]byte, len(r.nodes)*nodeSize)
	for i, n := range r.nodes {
		rec := nodes[i*nodeSize:][:nodeSize]
		if n.new == nil {
			le.PutUint64(rec, n.ino)
			le.PutUint32(rec[92:], nodeWhiteout)
			continue
		}
		t.record(rec, n.new)
		le.PutUint64(rec[8:], n.new.Parent)
		le.PutUint32(rec[20:], n.new.Nlink)
		if n.new.IsDir() {
			le.PutUint32(rec[32:], named[n.ino])
			le.PutUint32(rec[36:], lists[n.ino])
		}
	}
	for id, ref := range d.kinds {
		t.setKind(id, ref.Kind, ref.Aux)
	}
	out[secNodes], out[secDirs], out[secEntries], out[secHeap] = nodes, dirs, entries, heap
	out[secContents], out[secGitlinks], out[secXattrSets], out[secXattrData] = t.contents, t.gitlinks, t.sets, t.data
	return out, t.err
}

// mergeNodes is the node root of the base with changes.
func (v *view) mergeNodes(nodes []deltaNode) (root [32]byte, err error) {
	defer v.guard(debug.SetPanicOnFault(true), &err)
	changes := make([]trieChange, len(nodes))
	for i, n := range nodes {
		changes[i] = trieChange{key: nodeKey(n.ino), gone: n.new == nil}
		if n.new != nil {
			changes[i].value = appendNodeValue(nil, n.new)
		}
	}
	m := &merger{f: v.base, sec: secNodeTrie, base: fileNodes{v.base}}
	return m.root(changes), nil
}

// mergeEntries is the entry root of the base with changes.
func (v *view) mergeEntries(entries []deltaEntry) (root [32]byte, err error) {
	defer v.guard(debug.SetPanicOnFault(true), &err)
	changes := make([]trieChange, len(entries))
	for i, e := range entries {
		raw := bytesOf(e.name)
		changes[i] = trieChange{key: entryKey(e.dir, hashName(raw)), name: e.name, gone: e.new == 0}
		if e.new != 0 {
			changes[i].value = appendEntryValue(nil, raw, e.new, e.typ)
		}
	}
	sortChanges(changes)
	m := &merger{f: v.base, sec: secEntryTrie, base: fileEntries{v.base}}
	return m.root(changes), nil
}

// load gives a delta's changes to d.
func (v *view) load(d *Delta) (err error) {
	defer v.guard(debug.SetPanicOnFault(true), &err)
	f := v.delta
	for i := range f.sections[secNodes].n {
		rec := f.rec(secNodes, i)
		ino := le.Uint64(rec)
		if le.Uint32(rec[92:])&nodeWhiteout != 0 {
			d.nodes[ino] = nil
			continue
		}
		n := f.node(rec)
		if err := checkNode(&n); err != nil {
			f.damaged("%v", err)
		}
		d.nodes[ino] = &n
		if c := le.Uint32(rec[36:]); c != 0 && !n.IsDir() {
			ref := decodeContentRef(f.contentRec(c - 1))
			d.kinds[ref.ID] = ref
		}
	}
	for i := range f.sections[secDirs].n {
		rec := decodeDirRec(f.rec(secDirs, i))
		list := f.dir(i, rec.ino)
		for j := range uint64(list.count) {
			ino, name, typ := f.entry(list.first + j)
			f.validName(rec.ino, name, nil)
			if typ == typeWhiteout {
				ino = 0
			}
			d.setName(rec.ino, string(name), ino)
		}
	}
	return nil
}
