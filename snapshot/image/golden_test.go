package image_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tine/snapshot/content"
	"tine/snapshot/durable"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

var addGolden = flag.Bool("add-golden", false, "write golden vectors that are missing; those that are there never change")

// goldenID is the checkpoint id of sample(), goldenDeltaID that of the changed one. A change of either breaks every
// checkpoint in the world.
const (
	goldenID      = "109de8e0f63305adf69a44fab90f160b57e25c9ac9000713998aeef4e02fbe21"
	goldenDeltaID = "e8ca077afeda262f7a5d903c66e1d6e0e508890ac2a94a6e940990a2060cdcde"
)

func goldenDelta(t testing.TB, tree *imagetest.Tree) *image.Delta {
	d, err := image.NewDelta(tree.Image)
	if err != nil {
		t.Fatal(err)
	}
	n, err := tree.Node(tree.Inos["README"])
	if err != nil {
		t.Fatal(err)
	}
	n.Xattrs = []image.Xattr{{Name: "user.new", Value: []byte("v")}}
	d.SetNode(n)
	d.SetNode(image.Node{Ino: 100, Mode: 0o040700, Mtime: imagetest.Epoch})
	d.SetEntry(image.Root, "new", 100)
	d.RemoveEntry(image.Root, "dir")
	d.SetEntry(100, "moved", tree.Inos["dir"])
	d.RemoveEntry(image.Root, "empty")
	d.RemoveNode(tree.Inos["empty"])
	d.SetNextIno(200)
	return d
}

func TestGoldenImages(t *testing.T) {
	tree, b := imagetest.Builder(t, sample()...)
	sh := tree.Contents.Put([]byte("tool"))
	b.SetKind(sh, image.KindGit, [2]uint64{})
	path := write(t, b)
	tree.Image = openImage(t, path, nil)
	deltaPath := filepath.Join(t.TempDir(), "delta")
	if _, err := goldenDelta(t, tree).Write(durable.OS, deltaPath); err != nil {
		t.Fatal(err)
	}
	golden(t, "base-v1", path)
	golden(t, "delta-v1", deltaPath)

	base := openImage(t, "testdata/base-v1", nil)
	delta := openImage(t, "testdata/delta-v1", base)
	for name, m := range map[string]*image.Image{goldenID: base, goldenDeltaID: delta} {
		if err := m.Verify(); err != nil {
			t.Error(err)
		}
		if got := m.Identity().CheckpointID(); got != name {
			t.Errorf("checkpoint id %s, want %s", got, name)
		}
	}
	if ref, err := base.ContentOf(tree.Inos["bin/sh"]); err != nil || ref != (image.ContentRef{ID: sh, Kind: image.KindGit, Size: 4}) {
		t.Errorf("content of bin/sh: %+v, %v", ref, err)
	}
}

// golden compares a file with the vector of that name.
func golden(t *testing.T, name, path string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	vector := filepath.Join("testdata", name)
	want, err := os.ReadFile(vector)
	if os.IsNotExist(err) && *addGolden {
		if err := os.WriteFile(vector, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s has changed: %d bytes, the vector has %d", name, len(got), len(want))
	}
}

// element, trieHash, nodeValue: FORMAT.md's definition of the identity once more, without looking at the code.
type element struct {
	key   [16]byte
	value []byte
}

func trieHash(set []element) [32]byte {
	slices.SortStableFunc(set, func(a, b element) int { return bytes.Compare(a.key[:], b.key[:]) })
	nibbles := func(e element) string { return hex.EncodeToString(e.key[:]) }
	if len(set) <= 32 || set[0].key == set[len(set)-1].key {
		b := []byte("leaf")
		for _, e := range set {
			b = append(b, e.key[:]...)
			b = binary.LittleEndian.AppendUint32(b, uint32(len(e.value)))
			b = append(b, e.value...)
		}
		return sha256.Sum256(b)
	}
	first, last := nibbles(set[0]), nibbles(set[len(set)-1])
	steps := 0
	for first[steps] == last[steps] {
		steps++
	}
	prefix, err := hex.DecodeString(first[:steps] + "00000000000000000000000000000000"[:32-steps])
	if err != nil {
		panic(err)
	}
	b := append([]byte("node"), byte(steps))
	b = append(b, prefix...)
	for _, digit := range "0123456789abcdef" {
		var kid []element
		for _, e := range set {
			if rune(nibbles(e)[steps]) == digit {
				kid = append(kid, e)
			}
		}
		if len(kid) == 0 {
			b = append(b, make([]byte, 32)...)
			continue
		}
		h := trieHash(kid)
		b = append(b, h[:]...)
	}
	return sha256.Sum256(b)
}

func nodeValue(n image.Node) []byte {
	le := binary.LittleEndian
	var b []byte
	for _, v := range []uint32{n.Mode, n.UID, n.GID, n.Rdev} {
		b = le.AppendUint32(b, v)
	}
	b = le.AppendUint64(b, uint64(n.Size))
	for _, t := range []image.Time{n.Mtime, n.Ctime, n.Btime} {
		b = le.AppendUint64(b, uint64(t.Sec))
		b = le.AppendUint32(b, t.Nsec)
	}
	b = append(b, byte(n.Content.Algo))
	b = append(b, n.Content.Digest[:]...)
	b = append(b, byte(len(n.Gitlink)))
	b = append(b, n.Gitlink...)
	b = le.AppendUint32(b, uint32(len(n.Xattrs)))
	for _, x := range n.Xattrs {
		b = le.AppendUint16(b, uint16(len(x.Name)))
		b = append(b, x.Name...)
		b = le.AppendUint32(b, uint32(len(x.Value)))
		b = append(b, x.Value...)
	}
	return b
}

func specified(t *testing.T, m *image.Image) image.Identity {
	t.Helper()
	var nodes, entries []element
	err := m.EachNode(func(n image.Node) bool {
		e := element{value: nodeValue(n)}
		binary.BigEndian.PutUint64(e.key[:], n.Ino)
		nodes = append(nodes, e)
		if !n.IsDir() {
			return true
		}
		err := m.ReadDir(n.Ino, 0, func(d image.Dirent) bool {
			e := element{}
			binary.BigEndian.PutUint64(e.key[:], n.Ino)
			sum := sha256.Sum256([]byte(d.Name))
			copy(e.key[8:], sum[:8])
			e.value = binary.LittleEndian.AppendUint64(nil, d.Ino)
			e.value = append(append(e.value, d.Type), d.Name...)
			entries = append(entries, e)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return image.Identity{Format: 1, ObjectFormat: content.SHA1, EntriesRoot: trieHash(entries), NodesRoot: trieHash(nodes)}
}

// TestL3_IdentityIsAsSpecified computes identities by FORMAT.md.
func TestL3_IdentityIsAsSpecified(t *testing.T) {
	for name, m := range map[string]*image.Image{
		"empty": imagetest.Build(t).Image, "sample": imagetest.Build(t, sample()...).Image, "4000": bigImage(t, 4000),
		"golden delta": openImage(t, "testdata/delta-v1", openImage(t, "testdata/base-v1", nil)),
	} {
		want := specified(t, m)
		if got := m.Identity(); got != want {
			t.Errorf("%s: roots %x %x, want %x %x", name, got.EntriesRoot[:4], got.NodesRoot[:4], want.EntriesRoot[:4], want.NodesRoot[:4])
		}
		canonical := fmt.Sprintf(`{"entries_root":"%x","format":1,"nodes_root":"%x","object_format":"sha1"}`, want.EntriesRoot, want.NodesRoot)
		if got, id := m.Identity().CheckpointID(), fmt.Sprintf("%x", sha256.Sum256([]byte(canonical))); got != id {
			t.Errorf("%s: checkpoint id %s, want %s", name, got, id)
		}
	}
}
