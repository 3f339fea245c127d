package image

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"tine/snapshot/content"
	"tine/snapshot/durable"
)

// Builder makes an image in the base form. Nodes and entries come in any order; link counts and parents are computed
// from the entries, whatever the nodes say. The first mistake is kept and returned by Encode and Write. A Builder is
// used by one goroutine. With everything that it makes it takes at most about 450 bytes a node, names of 20 bytes included.
type Builder struct {
	format  content.ObjectFormat
	nextIno uint64
	nodes   []byte // records
	tables  tables
	entries []buildEntry
	names   []byte
	kinds   map[content.ID]ContentRef // set before their nodes came
	err     error
}

type buildEntry struct {
	dir, ino uint64
	prefix   uint64 // the name's first 8 bytes, big endian: most comparisons end here
	name     uint64 // packed; the type comes later
}

// NewBuilder begins an empty image; nodes come by Add, names by AddEntry. Root must be among the nodes.
func NewBuilder(format content.ObjectFormat) *Builder {
	b := &Builder{format: format, tables: newTables()}
	if format != content.SHA1 && format != content.SHA256 {
		b.fail(fmt.Errorf("unknown object format %d", format))
	}
	return b
}

func (b *Builder) fail(err error) {
	if b.err == nil {
		b.err = fmt.Errorf("build a tree image: %w", err)
	}
}

// Add adds a node. Its Nlink and Parent are ignored.
func (b *Builder) Add(n Node) {
	if err := checkNode(&n); err != nil {
		b.fail(err)
		return
	}
	if len(b.nodes)/nodeSize >= maxRecords || len(b.tables.contents)/contentSize >= maxRecords {
		b.fail(fmt.Errorf("more than %d nodes", uint32(maxRecords)))
		return
	}
	b.nodes = append(room(b.nodes, nodeSize), zeroNode[:]...)
	b.tables.record(b.nodes[len(b.nodes)-nodeSize:], &n)
}

var zeroNode [nodeSize]byte

// AddEntry names node ino in directory dir.
func (b *Builder) AddEntry(dir uint64, name string, ino uint64) {
	off := len(b.names)
	b.names = append(room(b.names, len(name)), name...)
	raw := b.names[off:]
	if err := checkName(raw); err != nil {
		b.fail(fmt.Errorf("directory %d: %w", dir, err))
		return
	}
	if ino == Root {
		b.fail(fmt.Errorf("directory %d: %q is the root", dir, name))
		return
	}
	if len(b.entries) >= maxRecords {
		b.fail(fmt.Errorf("more than %d entries", uint32(maxRecords)))
		return
	}
	b.entries = append(room(b.entries, 1), buildEntry{dir: dir, ino: ino, prefix: namePrefix(raw), name: packName(uint64(off), len(raw), 0)})
}

func namePrefix(name []byte) uint64 {
	var p [8]byte
	copy(p[:], name)
	return be.Uint64(p[:])
}

// SetNextIno raises the number that the next new node gets. Without it, it is one more than the greatest used.
func (b *Builder) SetNextIno(next uint64) { b.nextIno = max(b.nextIno, next) }

// SetKind records where a content comes from, before or after a node that has it. Without it, a content is taken to
// be stored, derived or chunked, by its algorithm.
func (b *Builder) SetKind(id content.ID, kind Kind, aux [2]uint64) {
	if !b.tables.setKind(id, kind, aux) {
		if b.kinds == nil {
			b.kinds = map[content.ID]ContentRef{}
		}
		b.kinds[id] = ContentRef{ID: id, Kind: kind, Aux: aux}
	}
}

// Write publishes the image at path (0444), replacing what was there.
func (b *Builder) Write(fsys durable.FS, path string) (Identity, error) {
	e, err := b.Encode()
	if err != nil {
		return Identity{}, err
	}
	return e.Identity(), e.Write(fsys, path)
}

// Encode checks the tree and lays the image out. The Builder is used up.
func (b *Builder) Encode() (*Encoded, error) {
	if b.tables.err != nil {
		b.fail(b.tables.err)
	}
	if b.err == nil {
		b.sortNodes()
		b.sortEntries()
	}
	if b.err != nil {
		return nil, b.err
	}
	for id, ref := range b.kinds {
		b.tables.setKind(id, ref.Kind, ref.Aux)
	}
	h := &header{form: formBase, format: b.format, entries: uint64(len(b.entries))}
	l := b.link()
	if b.err != nil {
		return nil, b.err
	}
	var sections [numSections][]byte
	sections[secNodes], sections[secDirs] = b.nodes, l.dirs
	sections[secEntries], sections[secHeap] = l.entries, l.heap
	sections[secContents], sections[secGitlinks] = b.tables.contents, b.tables.gitlinks
	sections[secXattrSets], sections[secXattrData] = b.tables.sets, b.tables.data

	// Both tries hash about 150 bytes an element; two cores halve the time of a large import.
	entries := make(chan struct{})
	go func() {
		defer close(entries)
		set := newEntrySet(l, b.entries)
		sections[secByHash] = set.byHash
		h.id.EntriesRoot, sections[secEntryTrie] = buildTrie(set)
	}()
	h.id.NodesRoot, sections[secNodeTrie] = buildTrie(nodeSet{b.nodes, &b.tables})
	<-entries

	h.inodes = uint64(len(b.nodes) / nodeSize)
	h.nextIno = b.nextIno
	for rec := b.nodes; len(rec) > 0; rec = rec[nodeSize:] {
		if typeOf(le.Uint32(rec[16:])) == typeFile {
			h.bytes += le.Uint64(rec[40:])
		}
	}
	return layOut(h, sections), nil
}

// sortNodes orders the records by number and refuses duplicates.
func (b *Builder) sortNodes() {
	n := len(b.nodes) / nodeSize
	ino := func(i int) uint64 { return le.Uint64(b.nodes[i*nodeSize:]) }
	sorted := true
	for i := 1; i < n && sorted; i++ {
		sorted = ino(i-1) < ino(i)
	}
	if !sorted {
		type place struct{ ino, at uint64 }
		order := make([]place, n)
		for i := range order {
			order[i] = place{ino(i), uint64(i)}
		}
		slices.SortFunc(order, func(x, y place) int { return cmp.Compare(x.ino, y.ino) })
		out := make([]byte, 0, len(b.nodes))
		for i, p := range order {
			if i > 0 && order[i-1].ino == p.ino {
				b.fail(fmt.Errorf("node %d is there twice", p.ino))
				return
			}
			out = append(out, b.nodes[p.at*nodeSize:][:nodeSize]...)
		}
		b.nodes = out
	}
	if n == 0 || ino(0) != Root || typeOf(le.Uint32(b.nodes[16:])) != typeDir {
		b.fail(fmt.Errorf("there is no root directory"))
		return
	}
	if last := ino(n - 1); b.nextIno == 0 {
		b.nextIno = last + 1
	} else if b.nextIno <= last {
		b.fail(fmt.Errorf("next node number %d is not above %d", b.nextIno, last))
	}
}

func (b *Builder) nameOf(e *buildEntry) []byte {
	off, n, _ := unpackName(e.name)
	return b.names[off : off+n]
}

// sortEntries orders the entries by directory and name and refuses duplicates.
func (b *Builder) sortEntries() {
	less := func(x, y buildEntry) int {
		if x.dir != y.dir {
			return cmp.Compare(x.dir, y.dir)
		}
		if x.prefix != y.prefix {
			return cmp.Compare(x.prefix, y.prefix)
		}
		return bytes.Compare(b.nameOf(&x), b.nameOf(&y))
	}
	if !slices.IsSortedFunc(b.entries, less) {
		slices.SortFunc(b.entries, less)
	}
	for i := 1; i < len(b.entries); i++ {
		if less(b.entries[i-1], b.entries[i]) == 0 {
			b.fail(fmt.Errorf("directory %d has %q twice", b.entries[i].dir, b.nameOf(&b.entries[i])))
			return
		}
	}
}

// linked is what follows from sorted nodes and entries.
type linked struct{ dirs, entries, heap []byte }

// link resolves the entries: it fills in nlink, parent, dir and name of the node records, makes the sections that
// hold the entries, and refuses what is no tree: unknown nodes, nodes without a name, directories with two, cycles.
func (b *Builder) link() *linked {
	n := uint64(len(b.nodes) / nodeSize)
	ino := func(i uint64) uint64 { return le.Uint64(b.nodes[i*nodeSize:]) }
	find := func(want uint64) ([]byte, bool) {
		i, ok := searchNumbers(n, ino(0), ino(n-1), want, ino)
		if !ok {
			return nil, false
		}
		return b.nodes[i*nodeSize:][:nodeSize], true
	}
	isDir := func(rec []byte) bool { return typeOf(le.Uint32(rec[16:])) == typeDir }
	nlink := func(rec []byte) { le.PutUint32(rec[20:], le.Uint32(rec[20:])+1) }

	l := &linked{entries: make([]byte, 0, len(b.entries)*entrySize), heap: make([]byte, 0, len(b.names))}
	at := 0
	for rec := b.nodes; len(rec) > 0; rec = rec[nodeSize:] {
		if !isDir(rec) {
			continue
		}
		d := dirRec{ino: le.Uint64(rec), first: uint64(at)}
		for at < len(b.entries) && b.entries[at].dir == d.ino {
			e := &b.entries[at]
			name := b.nameOf(e)
			child, ok := find(e.ino)
			if !ok {
				b.fail(fmt.Errorf("directory %d: %q names node %d, which is not there", d.ino, name, e.ino))
				return l
			}
			if isDir(child) {
				if le.Uint32(child[32:]) != 0 {
					b.fail(fmt.Errorf("directory %d has two names, one is %q in directory %d", e.ino, name, d.ino))
					return l
				}
				le.PutUint64(child[8:], d.ino)
				le.PutUint32(child[32:], uint32(at)+1)
				nlink(rec)
			} else {
				nlink(child)
			}
			w := packName(uint64(len(l.heap)), len(name), typeOf(le.Uint32(child[16:])))
			l.entries = le.AppendUint64(l.entries, e.ino)
			l.entries = le.AppendUint64(l.entries, w)
			l.heap = append(l.heap, name...)
			at++
		}
		d.count = uint32(uint64(at) - d.first)
		d.live = d.count
		l.dirs = d.append(l.dirs)
		le.PutUint32(rec[36:], uint32(len(l.dirs)/dirSize))
		le.PutUint32(rec[20:], le.Uint32(rec[20:])+2)
	}
	if at < len(b.entries) {
		e := &b.entries[at]
		b.fail(fmt.Errorf("%q is in node %d, which is no directory of the tree", b.nameOf(e), e.dir))
		return l
	}
	le.PutUint64(b.nodes[8:], Root)
	for rec := b.nodes[nodeSize:]; len(rec) > 0; rec = rec[nodeSize:] {
		if isDir(rec) && le.Uint32(rec[32:]) == 0 || le.Uint32(rec[20:]) == 0 {
			b.fail(fmt.Errorf("node %d has no name", le.Uint64(rec)))
			return l
		}
	}
	b.checkRooted(find)
	return l
}

// checkRooted refuses directories that hang together in a cycle. Each directory's parent is walked up to one that is
// known to be below the root.
func (b *Builder) checkRooted(find func(uint64) ([]byte, bool)) {
	good := make(map[uint64]bool)
	good[Root] = true
	var path []uint64
	for rec := b.nodes; len(rec) > 0; rec = rec[nodeSize:] {
		if typeOf(le.Uint32(rec[16:])) != typeDir {
			continue
		}
		path = path[:0]
		for d := rec; !good[le.Uint64(d)]; d, _ = find(le.Uint64(d[8:])) {
			if path = append(path, le.Uint64(d)); len(path) > len(b.nodes)/nodeSize {
				b.fail(fmt.Errorf("directory %d is inside itself", path[0]))
				return
			}
		}
		for _, ino := range path {
			good[ino] = true
		}
	}
}

// nodeSet are node records as a trie's elements.
type nodeSet struct {
	recs []byte
	t    recTables
}

func (s nodeSet) len() int      { return len(s.recs) / nodeSize }
func (s nodeSet) key(i int) key { return nodeKey(le.Uint64(s.recs[i*nodeSize:])) }
func (s nodeSet) appendValue(b []byte, i int) []byte {
	return appendRecordValue(b, s.recs[i*nodeSize:][:nodeSize], s.t)
}

// entrySet are entries as a trie's elements, in the order of byHash.
type entrySet struct {
	keys    []key
	byHash  []byte
	entries []byte
	heap    []byte
}

// newEntrySet orders entries by directory, name hash and name. sorted is in the section's order.
func newEntrySet(l *linked, sorted []buildEntry) *entrySet {
	s := &entrySet{keys: make([]key, 0, len(sorted)), byHash: make([]byte, 0, 4*len(sorted)), entries: l.entries, heap: l.heap}
	type place struct {
		hash uint64
		at   uint32
	}
	var order []place
	for at := 0; at < len(sorted); {
		dir := sorted[at].dir
		order = order[:0]
		for ; at < len(sorted) && sorted[at].dir == dir; at++ {
			order = append(order, place{hashName(s.name(at)), uint32(at)})
		}
		slices.SortFunc(order, func(x, y place) int { return cmp.Or(cmp.Compare(x.hash, y.hash), cmp.Compare(x.at, y.at)) })
		for _, p := range order {
			s.keys = append(s.keys, entryKey(dir, p.hash))
			s.byHash = le.AppendUint32(s.byHash, p.at)
		}
	}
	return s
}

func (s *entrySet) name(at int) []byte {
	off, n, _ := unpackName(le.Uint64(s.entries[at*entrySize+8:]))
	return s.heap[off : off+n]
}

func (s *entrySet) len() int      { return len(s.keys) }
func (s *entrySet) key(i int) key { return s.keys[i] }
func (s *entrySet) appendValue(b []byte, i int) []byte {
	at := int(le.Uint32(s.byHash[4*i:]))
	rec := s.entries[at*entrySize:]
	_, _, typ := unpackName(le.Uint64(rec[8:]))
	return appendEntryValue(b, s.name(at), le.Uint64(rec), typ)
}
