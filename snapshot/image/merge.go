package image

import (
	"bytes"
	"math/bits"
	"slices"
	"sort"
)

// trieChange is an element that differs from the base's set: changed, new, or gone.
type trieChange struct {
	key   key
	name  string // orders elements with one key
	gone  bool
	value []byte
}

func compareChanges(a, b trieChange) int {
	if c := compareKeys(&a.key, &b.key); c != 0 {
		return c
	}
	return bytes.Compare(bytesOf(a.name), bytesOf(b.name))
}

// namedElements are elements of which those with equal keys can be told apart.
type namedElements interface {
	elements
	name(i int) []byte
}

// merger computes the root hash of a base's set with changes applied, from the base's trie: subtrees without a
// change are taken as they are, so that it costs O(changes * depth).
type merger struct {
	f    *file // of the trie
	sec  int   // its section
	base namedElements
	leaf leafHasher
}

// subtrie is a part of the resulting set: elements of the base from lo on, a list, or several parts in key order.
type subtrie struct {
	count int
	hash  [32]byte
	rep   key // one of its keys
	lo    int
	list  []trieChange
	parts []subtrie
}

// root is the hash of the set with changes (sorted by compareChanges) applied.
func (m *merger) root(changes []trieChange) [32]byte {
	n := m.f.sections[m.sec].n
	if n == 0 {
		m.f.damaged("section %q is empty", sectionNames[m.sec])
	}
	s := m.merge(m.rec(n-1, n, -1), n-1, changes)
	if s.count == 0 {
		m.leaf.reset()
		return m.leaf.sum()
	}
	return s.hash
}

// rec is a checked record: its children come before parent, its elements exist, and it is deeper than above.
func (m *merger) rec(i, parent uint64, above int) *trieRec {
	r := decodeTrieRec(m.f.rec(m.sec, i))
	if i >= parent || uint64(r.first)+uint64(r.count) > uint64(m.base.len()) || r.mask != 0 &&
		(uint64(r.kids)+uint64(bits.OnesCount16(r.mask)) > i || int(r.depth) <= above || r.depth > 31 || r.count == 0) {
		m.f.damaged("record %d of section %q is malformed", i, sectionNames[m.sec])
	}
	return &r
}

// merge applies changes to the subtree r, which is record self; nil stands for an empty one.
func (m *merger) merge(r *trieRec, self uint64, changes []trieChange) subtrie {
	switch {
	case r == nil:
		return m.fromList(live(changes))
	case len(changes) == 0:
		s := subtrie{count: int(r.count), hash: r.hash, lo: int(r.first)}
		if s.count > 0 {
			s.rep = m.base.key(s.lo)
		}
		return s
	case r.mask == 0:
		if n := int(r.count); n > trieLeaf && m.base.key(int(r.first)) != m.base.key(int(r.first)+n-1) {
			m.f.damaged("record %d of section %q is malformed", self, sectionNames[m.sec])
		}
		return m.fromList(applyChanges(m.elements(int(r.first), int(r.count)), changes))
	}
	k, depth := m.base.key(int(r.first)), int(r.depth)
	from := sort.Search(len(changes), func(i int) bool {
		return common(&k, &changes[i].key) >= depth || compareKeys(&changes[i].key, &k) > 0
	})
	to := from
	for to < len(changes) && common(&k, &changes[to].key) >= depth {
		to++
	}
	inside, at := changes[from:to], 0
	var parts []subtrie
	kid := uint64(r.kids)
	for nib := range 16 {
		end := at
		for end < len(inside) && inside[end].key.nibble(depth) == nib {
			end++
		}
		var s subtrie
		if r.mask&(1<<nib) != 0 {
			s = m.merge(m.rec(kid, self, depth), kid, inside[at:end])
			kid++
		} else if end > at {
			s = m.merge(nil, 0, inside[at:end])
		}
		if s.count > 0 {
			parts = append(parts, s)
		}
		at = end
	}
	outside := append(live(changes[:from]), live(changes[to:])...)
	return m.unite(m.join(parts, depth), outside)
}

// elements lists base elements.
func (m *merger) elements(lo, n int) []trieChange {
	list := make([]trieChange, n)
	for i := range list {
		list[i] = trieChange{key: m.base.key(lo + i), name: string(m.base.name(lo + i)), value: m.base.appendValue(nil, lo+i)}
	}
	return list
}

func live(changes []trieChange) (list []trieChange) {
	for _, c := range changes {
		if !c.gone {
			list = append(list, c)
		}
	}
	return list
}

// applyChanges merges two sorted lists; of equal elements the change wins.
func applyChanges(base, changes []trieChange) []trieChange {
	out := make([]trieChange, 0, len(base)+len(changes))
	for len(base) > 0 || len(changes) > 0 {
		c := -1
		if len(base) == 0 {
			c = 1
		} else if len(changes) > 0 {
			c = compareChanges(base[0], changes[0])
		}
		if c < 0 {
			out = append(out, base[0])
			base = base[1:]
			continue
		}
		if c == 0 {
			base = base[1:]
		}
		if !changes[0].gone {
			out = append(out, changes[0])
		}
		changes = changes[1:]
	}
	return out
}

// fromList is the subtree of a sorted list of elements.
func (m *merger) fromList(list []trieChange) subtrie {
	n := len(list)
	if n == 0 {
		return subtrie{}
	}
	first, last := &list[0].key, &list[n-1].key
	if n <= trieLeaf || *first == *last {
		m.leaf.reset()
		for _, e := range list {
			m.leaf.add(e.key, func(b []byte) []byte { return append(b, e.value...) })
		}
		return subtrie{count: n, hash: m.leaf.sum(), rep: *first, list: list}
	}
	depth := common(first, last)
	var parts []subtrie
	for at := 0; at < n; {
		end := at + 1
		for end < n && list[end].key.nibble(depth) == list[at].key.nibble(depth) {
			end++
		}
		parts = append(parts, m.fromList(list[at:end]))
		at = end
	}
	return m.join(parts, depth)
}

// join makes one subtree of parts that agree in depth steps and differ in the next.
func (m *merger) join(parts []subtrie, depth int) subtrie {
	switch len(parts) {
	case 0:
		return subtrie{}
	case 1:
		return parts[0]
	}
	s := subtrie{rep: parts[0].rep, parts: parts}
	for i := range parts {
		s.count += parts[i].count
	}
	if s.count <= trieLeaf {
		return m.fromList(m.gather(s, nil))
	}
	var kids [16][32]byte
	for i := range parts {
		kids[parts[i].rep.nibble(depth)] = parts[i].hash
	}
	s.hash = nodeHash(depth, &s.rep, &kids)
	return s
}

// unite adds elements that lie outside of the prefix that all of s has.
func (m *merger) unite(s subtrie, outside []trieChange) subtrie {
	if s.count == 0 {
		return m.fromList(outside)
	}
	if len(outside) == 0 {
		return s
	}
	depth := min(common(&s.rep, &outside[0].key), common(&s.rep, &outside[len(outside)-1].key))
	var parts []subtrie
	mine := s.rep.nibble(depth)
	done := false
	for at := 0; at < len(outside) || !done; {
		nib := 16
		if at < len(outside) {
			nib = outside[at].key.nibble(depth)
		}
		if !done && nib >= mine {
			end := at
			for end < len(outside) && outside[end].key.nibble(depth) == mine {
				end++
			}
			parts = append(parts, m.unite(s, outside[at:end]))
			at, done = end, true
			continue
		}
		end := at + 1
		for end < len(outside) && outside[end].key.nibble(depth) == nib {
			end++
		}
		parts = append(parts, m.fromList(outside[at:end]))
		at = end
	}
	return m.join(parts, depth)
}

// gather lists the elements of a small subtree.
func (m *merger) gather(s subtrie, out []trieChange) []trieChange {
	switch {
	case s.list != nil:
		return append(out, s.list...)
	case s.parts != nil:
		for _, p := range s.parts {
			out = m.gather(p, out)
		}
		return out
	}
	return append(out, m.elements(s.lo, s.count)...)
}

// fileNodes are a base image's nodes as a trie's elements.
type fileNodes struct{ f *file }

func (s fileNodes) len() int          { return int(s.f.sections[secNodes].n) }
func (s fileNodes) key(i int) key     { return nodeKey(le.Uint64(s.f.rec(secNodes, uint64(i)))) }
func (s fileNodes) name(i int) []byte { return nil }
func (s fileNodes) appendValue(b []byte, i int) []byte {
	return appendRecordValue(b, s.f.rec(secNodes, uint64(i)), s.f)
}

// fileEntries are a base image's entries as a trie's elements, in hash order.
type fileEntries struct{ f *file }

func (s fileEntries) at(i int) uint64 { return uint64(le.Uint32(s.f.rec(secByHash, uint64(i)))) }
func (s fileEntries) len() int        { return int(s.f.sections[secByHash].n) }

func (s fileEntries) name(i int) []byte {
	_, name, _ := s.f.entry(s.at(i))
	return name
}

func (s fileEntries) key(i int) key {
	_, name, _ := s.f.entry(s.at(i))
	// Hash order keeps directories together, in the order of their entries. Of directories that begin here, all but
	// the last are empty.
	n := s.f.sections[secDirs].n
	after := sort.Search(int(n), func(j int) bool {
		return decodeDirRec(s.f.rec(secDirs, uint64(j))).first > uint64(i)
	})
	if after == 0 {
		s.f.damaged("entry %d is in no directory", i)
	}
	return entryKey(le.Uint64(s.f.rec(secDirs, uint64(after-1))), hashName(name))
}

func (s fileEntries) appendValue(b []byte, i int) []byte {
	ino, name, typ := s.f.entry(s.at(i))
	return appendEntryValue(b, name, ino, typ)
}

func sortChanges(changes []trieChange) { slices.SortFunc(changes, compareChanges) }
