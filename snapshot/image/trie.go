package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"sort"
)

// A trie over a set of (key, value) is a function of the set alone:
//
//	at most trieLeaf elements, or one key only:  leaf = SHA-256("leaf", then for each element key, length, value)
//	else, at the longest common prefix (in 4-bit steps) of the keys, a node with 16 children by the next 4 bits
//	                                             node = SHA-256("node", steps, prefix, 16 child hashes or zeroes)
//
// so that inserting, changing or removing an element touches one path, and the way in which a set came about leaves
// no trace.
const trieLeaf = 32

var be = binary.BigEndian

func putBE(b []byte, v uint64) { be.PutUint64(b, v) }

// nibble is the i-th 4-bit step of a key.
func (k *key) nibble(i int) int {
	b := k[i>>1]
	if i&1 == 0 {
		return int(b >> 4)
	}
	return int(b & 15)
}

// common is the number of 4-bit steps in which two keys agree at their beginning, at most 32.
func common(a, b *key) int {
	if x := be.Uint64(a[:]) ^ be.Uint64(b[:]); x != 0 {
		return bits.LeadingZeros64(x) / 4
	}
	if x := be.Uint64(a[8:]) ^ be.Uint64(b[8:]); x != 0 {
		return 16 + bits.LeadingZeros64(x)/4
	}
	return 32
}

func compareKeys(a, b *key) int { return bytes.Compare(a[:], b[:]) }

// leafHasher collects a leaf's elements.
type leafHasher struct{ buf []byte }

func (l *leafHasher) reset() { l.buf = append(l.buf[:0], "leaf"...) }

// add appends an element; value appends its value to its argument.
func (l *leafHasher) add(k key, value func(b []byte) []byte) {
	l.buf = append(l.buf, k[:]...)
	at := len(l.buf)
	l.buf = append(l.buf, 0, 0, 0, 0)
	l.buf = value(l.buf)
	le.PutUint32(l.buf[at:], uint32(len(l.buf)-at-4))
}

func (l *leafHasher) sum() [32]byte { return sha256.Sum256(l.buf) }

func nodeHash(depth int, k *key, kids *[16][32]byte) [32]byte {
	var b [4 + 1 + 16 + 16*32]byte
	copy(b[:], "node")
	b[4] = byte(depth)
	for i := range depth {
		b[5+i/2] |= byte(k.nibble(i)) << (4 * (1 - i&1))
	}
	for i := range kids {
		copy(b[21+32*i:], kids[i][:])
	}
	return sha256.Sum256(b[:])
}

// elements is a set, sorted by key and, among equal keys, by name.
type elements interface {
	len() int
	key(i int) key
	appendValue(b []byte, i int) []byte
}

// trieRec is a subtree: a leaf when mask is zero. It covers the elements [first, first+count); its children, one for
// each bit of mask, are the records from kids on.
type trieRec struct {
	hash  [32]byte
	first uint32
	count uint32
	kids  uint32
	mask  uint16
	depth uint8
}

func (r *trieRec) append(b []byte) []byte {
	b = append(b, r.hash[:]...)
	b = le.AppendUint32(b, r.first)
	b = le.AppendUint32(b, r.count)
	b = le.AppendUint32(b, r.kids)
	b = le.AppendUint16(b, r.mask)
	return append(b, r.depth, 0)
}

func decodeTrieRec(b []byte) (r trieRec) {
	copy(r.hash[:], b)
	r.first, r.count, r.kids = le.Uint32(b[32:]), le.Uint32(b[36:]), le.Uint32(b[40:])
	r.mask, r.depth = le.Uint16(b[44:]), b[46]
	return r
}

// trieBuilder computes a trie from scratch; recs are its records, children before parents, the root last.
type trieBuilder struct {
	set  elements
	leaf leafHasher
	recs []byte
}

// buildTrie returns a set's root hash and the trie's records.
func buildTrie(set elements) ([32]byte, []byte) {
	t := &trieBuilder{set: set}
	root := t.build(0, set.len())
	t.recs = root.append(t.recs)
	return root.hash, t.recs
}

func (t *trieBuilder) build(lo, hi int) trieRec {
	r := trieRec{first: uint32(lo), count: uint32(hi - lo)}
	var first, last key
	if hi > lo {
		first, last = t.set.key(lo), t.set.key(hi-1)
	}
	if hi-lo <= trieLeaf || first == last {
		t.leaf.reset()
		for i := lo; i < hi; i++ {
			t.leaf.add(t.set.key(i), func(b []byte) []byte { return t.set.appendValue(b, i) })
		}
		r.hash = t.leaf.sum()
		return r
	}
	depth := common(&first, &last)
	var hashes [16][32]byte
	var kids [16]trieRec
	n := 0
	for at := lo; at < hi; {
		k := t.set.key(at)
		nib := k.nibble(depth)
		end := at + sort.Search(hi-at, func(i int) bool {
			k := t.set.key(at + i)
			return k.nibble(depth) > nib
		})
		kid := t.build(at, end)
		hashes[nib], kids[n] = kid.hash, kid
		r.mask |= 1 << nib
		n++
		at = end
	}
	r.kids = uint32(len(t.recs) / trieSize)
	for i := range n {
		t.recs = kids[i].append(room(t.recs, trieSize))
	}
	r.depth = uint8(depth)
	r.hash = nodeHash(depth, &first, &hashes)
	return r
}
