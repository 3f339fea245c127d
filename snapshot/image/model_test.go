package image_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"tine/snapshot/content"
	"tine/snapshot/durable"
	"tine/snapshot/image"
)

// model is a tree in maps: the oracle.
type model struct {
	rng   *rand.Rand
	nodes map[uint64]image.Node
	names map[uint64]map[string]uint64
	next  uint64
	step  uint64 // gaps between numbers are up to this large
}

func newModel(seed uint64) *model {
	m := &model{rng: rand.New(rand.NewPCG(seed, 7)), nodes: map[uint64]image.Node{}, names: map[uint64]map[string]uint64{}, next: 2, step: 1}
	m.nodes[1] = image.Node{Ino: 1, Mode: 0o040755, Nlink: 2, Parent: 1}
	m.names[1] = map[string]uint64{}
	return m
}

// content sets one of 500 contents, of which each has its size.
func (m *model) content(n *image.Node) {
	i := m.rng.Uint64N(500)
	n.Content = content.ID{Algo: content.GitSHA1}
	binary.BigEndian.PutUint64(n.Content.Digest[:], i)
	n.Size = int64(i % 97)
}

// inos of a kind, in order, so that a seed replays.
func (m *model) inos(dir bool) (out []uint64) {
	for _, ino := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[ino]
		if n.IsDir() == dir {
			out = append(out, ino)
		}
	}
	return out
}

func pick[T any](m *model, from []T) T { return from[m.rng.IntN(len(from))] }

func (m *model) inside(dir, in uint64) bool {
	for dir != 1 {
		if dir == in {
			return true
		}
		dir = m.nodes[dir].Parent
	}
	return in == 1
}

func (m *model) setParent(ino, parent uint64) {
	n := m.nodes[ino]
	n.Parent = parent
	m.nodes[ino] = n
}

func (m *model) addNlink(ino uint64, by int) {
	n := m.nodes[ino]
	n.Nlink = uint32(int(n.Nlink) + by)
	m.nodes[ino] = n
}

// op is one random change; the sink hears of it as a delta would.
func (m *model) op(d *image.Delta) {
	dirs, files := m.inos(true), m.inos(false)
	dir := pick(m, dirs)
	name := fmt.Sprintf("n%d", m.rng.IntN(200))
	ino, exists := m.names[dir][name]
	set := func(dir uint64, name string, ino uint64) {
		m.names[dir][name] = ino
		if d != nil {
			d.SetEntry(dir, name, ino)
		}
	}
	unset := func(dir uint64, name string) {
		delete(m.names[dir], name)
		if d != nil {
			d.RemoveEntry(dir, name)
		}
	}
	node := func(ino uint64) {
		if n, ok := m.nodes[ino]; d != nil && ok {
			d.SetNode(n)
		} else if d != nil {
			d.RemoveNode(ino)
		}
	}
	switch k := m.rng.IntN(10); {
	case k < 4 && !exists: // create
		m.next += m.rng.Uint64N(m.step)
		n := image.Node{Ino: m.next, Mode: 0o100644, Nlink: 1}
		m.content(&n)
		m.next++
		switch m.rng.IntN(4) {
		case 0:
			n = image.Node{Ino: n.Ino, Mode: 0o040755, Nlink: 2, Parent: dir}
			m.names[n.Ino] = map[string]uint64{}
			m.addNlink(dir, 1)
			if m.rng.IntN(3) == 0 {
				n.Gitlink = []byte("aaaaaaaaaaaaaaaaaaaa")
			}
		case 1:
			n.Xattrs = []image.Xattr{{Name: "user.a", Value: []byte{byte(m.rng.IntN(3))}}}
		}
		m.nodes[n.Ino] = n
		node(n.Ino)
		set(dir, name, n.Ino)
		node(dir)
	case k < 5 && !exists && len(files) > 0: // link
		to := pick(m, files)
		m.addNlink(to, 1)
		set(dir, name, to)
		node(to)
	case k < 7 && len(m.names[dir]) > 0: // unlink or rmdir
		name = pick(m, slices.Sorted(maps.Keys(m.names[dir])))
		ino = m.names[dir][name]
		n := m.nodes[ino]
		if n.IsDir() {
			if len(m.names[ino]) > 0 {
				return
			}
			delete(m.names, ino)
			delete(m.nodes, ino)
			m.addNlink(dir, -1)
		} else if m.addNlink(ino, -1); m.nodes[ino].Nlink == 0 {
			delete(m.nodes, ino)
		}
		unset(dir, name)
		node(ino)
	case k < 8 && !exists: // rename
		from := pick(m, dirs)
		if len(m.names[from]) == 0 {
			return
		}
		old := pick(m, slices.Sorted(maps.Keys(m.names[from])))
		ino = m.names[from][old]
		n := m.nodes[ino]
		if n.IsDir() {
			if m.inside(dir, ino) {
				return
			}
			m.addNlink(from, -1)
			m.addNlink(dir, 1)
			m.setParent(ino, dir)
		}
		unset(from, old)
		set(dir, name, ino)
	case len(files) > 0: // change
		n := m.nodes[pick(m, files)]
		n.Mode = 0o100000 | uint32(m.rng.IntN(0o1000))
		n.Mtime = image.Time{Sec: int64(m.rng.IntN(3)), Nsec: uint32(m.rng.IntN(1e9))}
		m.content(&n)
		m.nodes[n.Ino] = n
		node(n.Ino)
	}
}

func (m *model) builder() *image.Builder {
	b := image.NewBuilder(content.SHA1)
	for _, n := range m.nodes {
		n.Nlink, n.Parent = 77, 78 // ignored
		b.Add(n)
	}
	for dir, list := range m.names {
		for name, ino := range list {
			b.AddEntry(dir, name, ino)
		}
	}
	b.SetNextIno(m.next)
	return b
}

// check compares a whole tree with the model.
func (m *model) check(t *testing.T, tree *image.Image) {
	t.Helper()
	for ino, want := range m.nodes {
		got, err := tree.Node(ino)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("node %d: %+v, %v; want %+v", ino, got, err, want)
		}
	}
	for dir, want := range m.names {
		got := map[string]uint64{}
		last := uint64(0)
		err := tree.ReadDir(dir, 0, func(d image.Dirent) bool {
			got[d.Name] = d.Ino
			if d.Pos <= last {
				t.Fatalf("directory %d: position %d after %d", dir, d.Pos, last)
			}
			last = d.Pos
			n := m.nodes[d.Ino]
			if at, err := tree.Lookup(dir, d.Name); err != nil || at != d || uint32(d.Type) != n.Mode>>12 {
				t.Fatalf("directory %d: look-up gives %+v, %v, listing %+v", dir, at, err, d)
			}
			return true
		})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("directory %d: %v, %v; want %v", dir, got, err, want)
		}
		if n, err := tree.NumEntries(dir); n != len(want) || err != nil {
			t.Fatalf("directory %d: %d entries, %v; want %d", dir, n, err, len(want))
		}
	}
	var bytes int64
	for _, n := range m.nodes {
		bytes += n.Size
	}
	if n, b := tree.Counts(); n != uint64(len(m.nodes)) || b != uint64(bytes) || tree.NextIno() != m.next {
		t.Fatalf("counts %d, %d, next %d; want %d, %d, %d", n, b, tree.NextIno(), len(m.nodes), bytes, m.next)
	}
}

func openImage(t testing.TB, path string, base *image.Image) *image.Image {
	t.Helper()
	m, err := image.Open(durable.OS, path, base)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestL3_IncrementalEqualsFromScratch seals random edits as deltas over a base, again and again, and compares each
// identity with the one of the same tree built from nothing.
func TestL3_IncrementalEqualsFromScratch(t *testing.T) {
	sizes := []int{0, 5, 60, 400, 3000}
	if testing.Short() {
		sizes = sizes[:4]
	}
	for _, size := range sizes {
		for _, step := range []uint64{1, 3, 1 << 40} {
			t.Run(fmt.Sprintf("%d/%d", size, step), func(t *testing.T) {
				m := newModel(uint64(size) + step)
				m.step = step
				for range size {
					m.op(nil)
				}
				m.incremental(t, 6)
			})
		}
	}
}

func (m *model) incremental(t *testing.T, rounds int) {
	dir := t.TempDir()
	if _, err := m.builder().Write(durable.OS, filepath.Join(dir, "base")); err != nil {
		t.Fatal(err)
	}
	base := openImage(t, filepath.Join(dir, "base"), nil)
	defer base.Close()
	m.check(t, base)
	tree := base
	for round := range rounds {
		d, err := image.NewDelta(tree)
		if err != nil {
			t.Fatal(err)
		}
		d.SetNextIno(m.next)
		for range 1 << (2 * m.rng.IntN(5)) {
			m.op(d)
			d.SetNextIno(m.next)
		}
		path := filepath.Join(dir, fmt.Sprint("delta", round))
		got, err := d.Write(durable.OS, path)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		tree = openImage(t, path, base)
		m.check(t, tree)
		e, err := m.builder().Encode()
		if err != nil {
			t.Fatal(err)
		}
		if want := e.Identity(); got != want || tree.Identity() != want {
			t.Fatalf("round %d: the delta's identity is %x %x, from scratch %x %x", round, got.EntriesRoot[:4], got.NodesRoot[:4], want.EntriesRoot[:4], want.NodesRoot[:4])
		}
		if err := tree.Verify(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}
