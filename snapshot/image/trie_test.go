package image

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"tine/snapshot/durable"
)

// listSet is a sorted list as a trie's elements.
type listSet []trieChange

func (s listSet) len() int                           { return len(s) }
func (s listSet) key(i int) key                      { return s[i].key }
func (s listSet) name(i int) []byte                  { return []byte(s[i].name) }
func (s listSet) appendValue(b []byte, i int) []byte { return append(b, s[i].value...) }

// trieFile is a file that has only a trie.
func trieFile(t *testing.T, recs []byte) *file {
	t.Helper()
	var sections [numSections][]byte
	sections[secNodeTrie] = recs
	var b bytes.Buffer
	if _, err := layOut(&header{form: formBase, format: 1}, sections).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	f := &file{path: "trie", data: b.Bytes()}
	if err := f.init(); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestL3_MergeEqualsBuild merges random changes into random sets, of keys that agree in as many steps as can be, and
// of which some are equal, around the size at which leaves split.
func TestL3_MergeEqualsBuild(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	random := func() trieChange {
		var c trieChange
		// Few values at few places: long common prefixes, many collisions.
		for range 1 + rng.IntN(3) {
			c.key[rng.IntN(16)] = byte(rng.IntN(4)) << (4 * rng.IntN(2))
		}
		if rng.IntN(4) == 0 {
			c.name = fmt.Sprint(rng.IntN(60)) // equal keys
		}
		c.value = []byte{byte(rng.IntN(256))}
		return c
	}
	unique := func(list []trieChange) []trieChange {
		sortChanges(list)
		return slices.CompactFunc(list, func(a, b trieChange) bool { return compareChanges(a, b) == 0 })
	}
	for range 1500 {
		var set, changes []trieChange
		for range rng.IntN(3) * rng.IntN(90) {
			set = append(set, random())
		}
		set = unique(set)
		for range rng.IntN(60) {
			c := random()
			if len(set) > 0 && rng.IntN(2) == 0 {
				c = set[rng.IntN(len(set))]
				c.value = []byte("changed")
			}
			c.gone = rng.IntN(2) == 0
			changes = append(changes, c)
		}
		if rng.IntN(4) == 0 { // all or nearly all go
			for _, c := range set {
				c.gone = rng.IntN(20) != 0
				changes = append(changes, c)
			}
		}
		changes = unique(changes)
		_, recs := buildTrie(listSet(set))
		m := &merger{f: trieFile(t, recs), sec: secNodeTrie, base: listSet(set)}
		got := m.root(changes)
		want, _ := buildTrie(listSet(applyChanges(set, changes)))
		if got != want {
			t.Fatalf("%d elements, %d changes: %x, want %x", len(set), len(changes), got[:4], want[:4])
		}
	}
}

// TestRecordValueIsNodeValue: the identity's bytes of a node are the same from a record and from a Node.
func TestRecordValueIsNodeValue(t *testing.T) {
	f, err := openFile(durable.OS, "testdata/base-v1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.sections[secNodes].n {
		rec := f.rec(secNodes, i)
		n := f.node(rec)
		if got, want := appendRecordValue(nil, rec, f), appendNodeValue(nil, &n); string(got) != string(want) {
			t.Errorf("node %d: %x, want %x", n.Ino, got, want)
		}
	}
}

func TestSearchNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var list []uint64
		at := rng.Uint64N(3)
		for range rng.IntN(200) {
			at += 1 + rng.Uint64N(1<<rng.IntN(55))
			list = append(list, at)
		}
		if rng.IntN(3) == 0 {
			list = append(list, 1<<64-1)
		}
		if len(list) == 0 {
			continue
		}
		probes := 0
		at2 := func(i uint64) uint64 { probes++; return list[i] }
		for i, v := range list {
			probes = 0
			if got, ok := searchNumbers(uint64(len(list)), list[0], list[len(list)-1], v, at2); !ok || got != uint64(i) {
				t.Fatalf("%d is at %d, found %d %v", v, i, got, ok)
			}
			if probes > guesses+9 {
				t.Fatalf("%d probes of %d", probes, len(list))
			}
			for _, near := range []uint64{v - 1, v + 1} {
				if _, ok := searchNumbers(uint64(len(list)), list[0], list[len(list)-1], near, at2); ok != slices.Contains(list, near) {
					t.Fatalf("%d found: %v", near, ok)
				}
			}
		}
	}
}
