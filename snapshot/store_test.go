package snapshot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tine/snapshot/content"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

// pattern is n bytes that depend on seed only.
func pattern(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(b)
	return b
}

func openStore(t testing.TB, dir string, opt Options) *Store {
	t.Helper()
	s, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newStore(t testing.TB) *Store {
	t.Helper()
	return openStore(t, filepath.Join(t.TempDir(), "store"), Options{Create: true})
}

func hold(t testing.TB, s *Store) *Hold {
	t.Helper()
	h, err := s.Shared(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Release() })
	return h
}

func readAll(t testing.TB, s content.Opener, id content.ID) []byte {
	t.Helper()
	r, err := s.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.NewSectionReader(r, 0, r.Size()))
	if err != nil || int64(len(data)) != r.Size() {
		t.Fatalf("%s: %d bytes of %d, %v", id, len(data), r.Size(), err)
	}
	return data
}

// contents has one of each way to be stored.
func contents() [][]byte {
	sparse := make([]byte, content.MaxSmall+5*content.ChunkSize/2)
	copy(sparse[3*content.ChunkSize+7:], "x")
	loose, _ := content.ReadAll(content.NewLoose(content.FromBytes(pattern(9, 1000))), 1<<20)
	looseLarge, _ := content.ReadAll(content.NewLoose(content.FromBytes(pattern(10, content.MaxSmall+1))), 1<<30)
	return [][]byte{
		nil, []byte("hello\n"), pattern(1, 70000), pattern(2, inlineLimit), pattern(3, inlineLimit+1), pattern(4, content.MaxSmall),
		pattern(5, content.MaxSmall+1), pattern(6, 12*content.ChunkSize+17), sparse, loose, looseLarge,
	}
}

func TestO5_ContentsComeBack(t *testing.T) {
	for _, f := range []content.ObjectFormat{content.SHA1, content.SHA256} {
		s := newStore(t)
		hold(t, s)
		var ids []content.ID
		for i, data := range contents() {
			id, err := s.Put(data, f)
			if err != nil {
				t.Fatal(i, err)
			}
			if want := content.HashBytes(data, f).ID; id != want {
				t.Fatalf("%d: %s, want %s", i, id, want)
			}
			again, err := s.PutReader(bytes.NewReader(data), int64(len(data)), f)
			if err != nil || again != id {
				t.Fatal(i, again, err)
			}
			ids = append(ids, id)
		}
		check := func(s *Store) {
			t.Helper()
			for i, data := range contents() {
				if got := readAll(t, s, ids[i]); !bytes.Equal(got, data) {
					t.Fatalf("%s: %d: other bytes", f, i)
				}
				r, err := s.Open(ids[i])
				if err != nil {
					t.Fatal(err)
				}
				for range 30 {
					off := rand.IntN(len(data) + 1)
					p := make([]byte, min(rand.IntN(len(data)-off+1), 300000))
					if err := content.ReadFull(r, p, int64(off)); err != nil || !bytes.Equal(p, data[off:off+len(p)]) {
						t.Fatalf("%s: %d: ReadAt(%d, %d): %v", f, i, off, len(p), err)
					}
				}
				if n, err := r.ReadAt(make([]byte, 2), int64(len(data))); n != 0 || err != io.EOF {
					t.Fatalf("read at the end: %d, %v", n, err)
				}
				r.Close()
			}
		}
		check(s) // appended, not yet indexed
		other := openStore(t, s.Dir(), Options{ReadOnly: true})
		if other.Has(ids[1]) {
			t.Fatal("visible to others before Sync")
		}
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		check(s)
		check(other) // by a reload after the miss
		check(openStore(t, s.Dir(), Options{ReadOnly: true}))
	}
}

func TestContentsAreStoredOnce(t *testing.T) {
	s := newStore(t)
	hold(t, s)
	put := func() {
		for _, data := range contents() {
			if _, err := s.Put(data, content.SHA1); err != nil {
				t.Fatal(err)
			}
		}
	}
	put()
	first := s.out.end
	put()
	s.Sync()
	put()
	if s.out.end != first {
		t.Fatalf("the segment grew from %d to %d bytes", first, s.out.end)
	}
	// 12 chunks and 17 bytes, of which one chunk changed; the sparse content has one chunk, and its short last one.
	big := pattern(6, 12*content.ChunkSize+17)
	big[5*content.ChunkSize] ^= 1
	if _, err := s.Put(big, content.SHA1); err != nil {
		t.Fatal(err)
	}
	if grown := s.out.end - first; grown > content.ChunkSize+1000 {
		t.Fatalf("one changed chunk took %d bytes", grown)
	}
}

func TestPutChangedReadsChangedChunksOnly(t *testing.T) {
	s := newStore(t)
	hold(t, s)
	old := pattern(6, 12*content.ChunkSize+17)
	base, err := s.Put(old, content.SHA1)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{len(old), len(old) - 20, len(old) + 3*content.ChunkSize, 9 * content.ChunkSize} {
		data := append(bytes.Clone(old), make([]byte, 3*content.ChunkSize)...)[:size]
		data[7*content.ChunkSize+1]++
		r := &countingReader{r: bytes.NewReader(data)}
		id, err := s.PutChanged(r, int64(size), base, func(i int) bool { return i == 7 || i >= 12 }, content.SHA1)
		if err != nil || id != content.HashBytes(data, content.SHA1).ID {
			t.Fatal(size, id, err)
		}
		if r.n > 6*content.ChunkSize {
			t.Errorf("%d: %d bytes read", size, r.n)
		}
		if !bytes.Equal(readAll(t, s, id), data) {
			t.Fatal("other bytes")
		}
	}
}

type countingReader struct {
	r  io.ReaderAt
	mu sync.Mutex
	n  int64
}

func (c *countingReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(p, off)
	c.mu.Lock()
	c.n += int64(n)
	c.mu.Unlock()
	return n, err
}

func TestHolesAreKnown(t *testing.T) {
	s := newStore(t)
	hold(t, s)
	data := contents()[8]
	id, _ := s.Put(data, content.SHA1)
	r, err := s.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	start, end := r.(content.Sparse).NextData(0)
	if start != 3*content.ChunkSize || end != 4*content.ChunkSize {
		t.Fatalf("first data at [%d, %d)", start, end)
	}
	if start, end = r.(content.Sparse).NextData(end); start != 10*content.ChunkSize || end != int64(len(data)) {
		t.Fatalf("then at [%d, %d)", start, end)
	}
}

func TestStoringNeedsAHold(t *testing.T) {
	s := newStore(t)
	if _, err := s.Put([]byte("x"), content.SHA1); !errors.Is(err, ErrNoHold) {
		t.Fatal(err)
	}
}

func TestNothingIsCreatedByAReader(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrNoStore) {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("opening made the directory")
	}
	openStore(t, dir, Options{Create: true}).Close()
	s := openStore(t, dir, Options{})
	id := content.BlobID([]byte("x"), content.SHA1)
	var missing *content.MissingError
	if _, err := s.Open(id); !errors.As(err, &missing) || missing.ID != id {
		t.Fatal(err)
	}
	s.List()
	s.Names()
	s.Sources()
	s.Checkpoint("deadbeef")
	s.Close()
	if ents, _ := os.ReadDir(dir); len(ents) != 1 {
		t.Fatal(ents)
	}
}

func TestStoreOfAnotherVersionIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"tine store 2\nid 00000000000000000000000000000000\n":               "has format version 2, this version of tine knows version 1",
		"tine store 1\nid 00000000000000000000000000000000\nfeature zstd\n": `needs the feature "zstd"`,
		"tine store 1\n":   "no store id",
		"something else\n": "not a tine store's",
	} {
		dir := t.TempDir()
		os.WriteFile(filepath.Join(dir, "format"), []byte(text), 0o644)
		if _, err := Open(dir, Options{Create: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "format"), []byte("tine store 1\nid 00000000000000000000000000000000\ncompat x\n"), 0o644)
	openStore(t, dir, Options{})
	dir = t.TempDir()
	os.WriteFile(filepath.Join(dir, "precious"), nil, 0o644)
	if _, err := Open(dir, Options{Create: true}); err == nil || !strings.Contains(err.Error(), "neither a store nor empty") {
		t.Error(err)
	}
}

func TestCollisionIsRefused(t *testing.T) {
	s := newStore(t)
	hold(t, s)
	id, err := s.Put([]byte("one"), content.SHA1)
	if err != nil {
		t.Fatal(err)
	}
	// Two contents with one git id can't be had; an id of the store's with another SHA-256 can.
	err = s.keepSum(content.Sum{ID: id, Size: 3, SHA256: [32]byte{1}}, []byte("two"), true)
	var collision *CollisionError
	if !errors.As(err, &collision) || collision.ID != id {
		t.Fatal(err)
	}
}

func draft(t testing.TB, s *Store, entries ...imagetest.Entry) Draft {
	t.Helper()
	tree, b := imagetest.Builder(t, entries...)
	for _, e := range entries {
		if e.Data != "" {
			if _, err := s.Put([]byte(e.Data), content.SHA1); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = tree
	enc, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return Draft{Image: enc, Provenance: Provenance{Kind: "test", Source: t.Name()}}
}

func TestPublishAndFind(t *testing.T) {
	s := newStore(t)
	hold(t, s)
	ctx := context.Background()
	d := draft(t, s, imagetest.File("a", "hello", 0o644), imagetest.Symlink("d/l", "../a"))
	d.Files, d.Bytes, d.Commit = 2, 9, strings.Repeat("ab", 20)
	c, err := s.Publish(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Publish(ctx, d)
	if err != nil || again.ID != c.ID {
		t.Fatal(again, err)
	}
	if p, err := s.Provenance(c.ID); err != nil || len(p) != 2 || p[0].Source != t.Name() {
		t.Fatal(p, err)
	}
	other, err := s.Publish(ctx, draft(t, s, imagetest.File("a", "other", 0o644)))
	if err != nil || other.ID == c.ID {
		t.Fatal(err)
	}
	if err := s.Tag(c.ID, "main/ö", false); err != nil {
		t.Fatal(err)
	}
	if err := s.Tag(c.ID, "main/ö", false); err != nil {
		t.Fatal("again: ", err)
	}
	var taken *NameTakenError
	if err := s.Tag(other.ID, "main/ö", false); !errors.As(err, &taken) || taken.Checkpoint != c.ID {
		t.Fatal(err)
	}
	reader := openStore(t, s.Dir(), Options{ReadOnly: true})
	for _, what := range []string{c.ID, c.ID[:12], "main/ö"} {
		got, err := reader.Checkpoint(what)
		if err != nil || got.ID != c.ID || got.Commit != d.Commit || got.Files != 2 || got.Bytes != 9 {
			t.Fatal(what, got, err)
		}
	}
	for _, what := range []string{"", "x", "main", "abcd", strings.Repeat("0", 64)} {
		if _, err := reader.Checkpoint(what); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", what, err)
		}
	}
	f, err := reader.Files(c.ID)
	if err != nil {
		t.Fatal(err)
	}
	e, err := f.Lookup(image.Root, "a")
	if err != nil {
		t.Fatal(err)
	}
	n, _ := f.Node(e.Ino)
	r, err := f.OpenFile(n)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := content.ReadAll(r, 100); string(b) != "hello" {
		t.Fatalf("%q", b)
	}
	if err := s.Tag(other.ID, "main/ö", true); err != nil {
		t.Fatal(err)
	}
	if names, err := s.Names(); err != nil || len(names) != 1 || names[0] != (Name{"main/ö", other.ID}) {
		t.Fatal(names, err)
	}
	if err := s.Remove(other.ID); !errors.As(err, &taken) {
		t.Fatal("removed beneath a name: ", err)
	}
	if err := s.Untag("main/ö"); err != nil {
		t.Fatal(err)
	}
	if err := s.Untag("main/ö"); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	if err := s.Remove(other.ID); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(); err != nil || len(list) != 1 || list[0].ID != c.ID {
		t.Fatal(list, err)
	}
}

func TestNamesThatAreRefused(t *testing.T) {
	for _, name := range []string{"", "-x", ".", "..", ".hid", "a b", "a\n", "\xff", "git:x@y", strings.Repeat("a", 64), strings.Repeat("x", 81),
		"a/..", "a/../b", "a/./b", "x/.", "0123", "cafe", "deadbeef", strings.Repeat("0", 63)} {
		if CheckName(name) == nil {
			t.Errorf("%q is a name", name)
		}
	}
	for _, name := range []string{"abc", "v1", "cafes", "CAFE", "a/b", "a/...", "a/..b", "be/ef"} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
}

// Names that an earlier release has given away can be used and removed.
func TestNameThatLooksLikeAnIDFromBefore(t *testing.T) {
	s := newStore(t)
	h := hold(t, s)
	defer h.Release()
	c, err := s.Publish(t.Context(), draft(t, s, imagetest.File("a", "hello", 0o644)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Tag(c.ID, "other", false); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.namePath("other"), s.namePath("cafe")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Checkpoint("cafe"); err != nil || got.ID != c.ID {
		t.Fatal(got, err)
	}
	if err := s.Untag("cafe"); err != nil {
		t.Fatal(err)
	}
}
