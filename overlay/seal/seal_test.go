package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"tine/overlay"
	"tine/snapshot"
	"tine/snapshot/content"
	"tine/snapshot/diff"
	"tine/snapshot/durable"
	"tine/snapshot/image"
)

// bench is a store with a base checkpoint, and a fork of the last sealed checkpoint.
type bench struct {
	t     testing.TB
	store *snapshot.Store
	base  snapshot.Checkpoint
	fork  *overlay.Fork
	forks int
}

func newBench(t testing.TB, fill func(b *image.Builder, put func(ino uint64, mode uint32, data []byte))) *bench {
	return newBenchOn(t, durable.OS, fill)
}

func newBenchOn(t testing.TB, fsys durable.FS, fill func(b *image.Builder, put func(ino uint64, mode uint32, data []byte))) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "tine-test-") // syncs are not what is tested here
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := snapshot.Open(filepath.Join(dir, "store"), snapshot.Options{Create: true, FS: fsys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	b := &bench{t: t, store: s}
	hold, err := s.Shared(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Release()
	ib := image.NewBuilder(content.SHA1)
	fill(ib, func(ino uint64, mode uint32, data []byte) {
		n := image.Node{Ino: ino, Mode: mode, Size: int64(len(data))}
		if typ := mode >> 12; typ == 8 || typ == 10 {
			if n.Content, err = s.Put(data, content.SHA1); err != nil {
				t.Fatal(err)
			}
		} else {
			n.Size = 0
		}
		ib.Add(n)
	})
	enc, err := ib.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if b.base, err = s.Publish(context.Background(), snapshot.Draft{Image: enc, Sources: []string{"0123456789abcdef0123456789abcdef"}}); err != nil {
		t.Fatal(err)
	}
	f, err := s.Files(b.base.ID)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := countAll(f)
	if err != nil {
		t.Fatal(err)
	}
	b.base.Files, b.base.Bytes = sum.files, sum.bytes
	b.publishCounts(enc)
	b.open(b.base.ID)
	return b
}

// publishCounts publishes the base again, with its totals.
func (b *bench) publishCounts(enc *image.Encoded) {
	b.t.Helper()
	if err := b.store.Remove(b.base.ID); err != nil {
		b.t.Fatal(err)
	}
	var err error
	b.base, err = b.store.Publish(context.Background(), snapshot.Draft{Image: enc, Files: b.base.Files, Bytes: b.base.Bytes, Sources: b.base.Sources})
	if err != nil {
		b.t.Fatal(err)
	}
}

// open forks a checkpoint.
func (b *bench) open(id string) {
	b.t.Helper()
	tree, err := b.store.Tree(id)
	if err != nil {
		b.t.Fatal(err)
	}
	layers := filepath.Join(b.t.TempDir(), fmt.Sprint("layers", b.forks))
	os.Mkdir(layers, 0o700)
	b.forks++
	tick := int64(1)
	f, err := overlay.Open(overlay.Config{
		Base: tree, Contents: b.store, LayersDir: layers, Layers: []overlay.LayerID{overlay.NewLayerID()}, ForkID: fmt.Sprint("fork", b.forks), BaseID: id,
		Now: func() image.Time { tick++; return image.Time{Sec: 1700000000 + tick, Nsec: uint32(tick)} },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.fork = f
	b.t.Cleanup(func() { f.Close() })
}

// seal rotates and seals, and checks that the checkpoint is the fork.
func (b *bench) seal() Result {
	b.t.Helper()
	v, err := b.fork.Rotate(overlay.NewLayerID())
	if err != nil {
		b.t.Fatal(err)
	}
	defer v.Close()
	r, err := View(context.Background(), b.store, v, Options{Provenance: snapshot.Provenance{Kind: "seal"}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.same(v, r)
	return r
}

// same compares a view with what it was sealed to, in three ways.
func (b *bench) same(v *overlay.View, r Result) {
	b.t.Helper()
	f, err := b.store.Files(r.Checkpoint.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	changes, err := diff.Trees(context.Background(), v, f, diff.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range changes {
		b.t.Errorf("sealed differently: %c %s %v", c.Status, c.Path, c.What.Names())
	}
	// The id is that of the tree written from scratch: it does not depend on how it came about.
	m, err := b.store.Tree(r.Checkpoint.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := m.Verify(); err != nil {
		b.t.Fatal(err)
	}
	builder, err := m.Builder()
	if err != nil {
		b.t.Fatal(err)
	}
	enc, err := builder.Encode()
	if err != nil || enc.Identity().CheckpointID() != r.Checkpoint.ID {
		b.t.Fatalf("from scratch: %v %v", enc.Identity().CheckpointID(), err)
	}
	sum, err := countAll(f)
	if err != nil {
		b.t.Fatal(err)
	}
	if sum.files != r.Checkpoint.Files || sum.bytes != r.Checkpoint.Bytes {
		b.t.Fatalf("counted %d files and %d bytes, there are %d and %d", r.Checkpoint.Files, r.Checkpoint.Bytes, sum.files, sum.bytes)
	}
}

var root = overlay.Caller{}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) ino(path ...string) uint64 {
	b.t.Helper()
	at := uint64(image.Root)
	for _, name := range path {
		a, err := b.fork.Lookup(at, name)
		b.must(err)
		at = a.Ino
	}
	return at
}

func (b *bench) put(dir uint64, name string, data []byte) uint64 {
	b.t.Helper()
	a, err := b.fork.Create(root, dir, name, 0o644, true)
	b.must(err)
	b.write(a.Ino, data, 0)
	return a.Ino
}

func (b *bench) write(ino uint64, data []byte, off int64) {
	b.t.Helper()
	for len(data) > 0 {
		n, err := b.fork.Write(root, ino, data[:min(len(data), 1<<20)], off, false)
		b.must(err)
		data, off = data[n:], off+int64(n)
	}
}

func sample(b *image.Builder, put func(ino uint64, mode uint32, data []byte)) {
	put(1, 0o040755, nil)
	put(2, 0o100644, []byte("content of a\n"))
	put(3, 0o040755, nil)
	put(4, 0o100755, bytes.Repeat([]byte("b"), 300000))
	put(5, 0o120777, []byte("dir/b"))
	put(6, 0o040755, nil)
	put(7, 0o100444, []byte("in .git"))
	put(8, 0o100644, bytes.Repeat([]byte("large"), 3<<20))
	put(9, 0o010644, nil)
	for _, e := range []struct {
		dir  uint64
		name string
		ino  uint64
	}{{1, "a", 2}, {1, "dir", 3}, {3, "b", 4}, {1, "link", 5}, {1, ".git", 6}, {6, "config", 7}, {1, "large", 8}, {1, "fifo", 9}, {3, "a2", 2}} {
		b.AddEntry(e.dir, e.name, e.ino)
	}
	for i := range uint64(200) { // so that small changes stay deltas
		put(100+i, 0o100644, fmt.Appendf(nil, "file %d", i))
		b.AddEntry(3, fmt.Sprintf("f%d", i), 100+i)
	}
}

func TestL2_UnchangedForkSealsToItsBase(t *testing.T) {
	b := newBench(t, sample)
	r := b.seal()
	if r.Changed || r.Checkpoint.ID != b.base.ID {
		t.Fatal(r)
	}
	// Nor is a change that was undone one.
	n := b.put(1, "tmp", []byte("x"))
	_ = n
	if r = b.seal(); !r.Changed {
		t.Fatal("a new file is no change")
	}
	before, err := b.fork.Getattr(1)
	b.must(err)
	b.must(b.fork.Unlink(root, 1, "tmp"))
	_ = before
	base, _ := b.store.Tree(b.base.ID)
	rn, _ := base.Node(1)
	_, err = b.fork.Setattr(root, 1, overlay.SetAttr{Valid: overlay.SetMtime | overlay.SetCtime, Mtime: rn.Mtime, Ctime: rn.Ctime})
	b.must(err)
	if r = b.seal(); r.Changed || r.Checkpoint.ID != b.base.ID {
		t.Fatal("undone: ", r)
	}
	if p, err := b.store.Provenance(b.base.ID); err != nil || len(p) != 2 {
		t.Fatal(p, err)
	}
}

func TestSealOfEverythingThatChanges(t *testing.T) {
	b := newBench(t, sample)
	b.write(b.ino("a"), []byte("CONTENT"), 0)
	b.put(b.ino("dir"), "new", []byte("new"))
	sub, err := b.fork.Mkdir(root, b.ino("dir"), "sub", 0o700)
	b.must(err)
	b.must(b.fork.Rename(root, b.ino("dir"), "b", sub.Ino, "moved", 0))
	_, err = b.fork.Symlink(root, 1, "sym", "\xff/target")
	b.must(err)
	b.must(b.fork.Unlink(root, 1, "link"))
	_, err = b.fork.Link(root, b.ino("dir", "f1"), 1, "hard")
	b.must(err)
	b.write(b.ino("hard"), []byte("longer than it was"), 3)
	_, err = b.fork.Mknod(root, 1, "dev", 0o020600, 1<<8|3)
	b.must(err)
	_, err = b.fork.Setattr(root, b.ino("dir", "f2"), overlay.SetAttr{Valid: overlay.SetMode | overlay.SetUID, Mode: 0o4755, UID: 1000})
	b.must(err)
	b.must(b.fork.Setxattr(root, b.ino("dir", "f3"), "user.k", []byte("v"), 0))
	b.write(b.ino(".git", "config"), []byte("longer inside of .git"), 0)
	b.put(b.ino(".git"), "index", []byte("not counted"))
	orphan := b.put(1, "orphan", []byte("open and unlinked"))
	b.must(b.fork.Unlink(root, 1, "orphan"))
	_ = orphan
	r := b.seal()
	if !r.Changed || r.Checkpoint.Base != b.base.ID || r.Checkpoint.Parent != b.base.ID || len(r.Checkpoint.Sources) != 1 {
		t.Fatalf("%+v", r)
	}
	// What comes after the rotation isn't in it; and the next seal's delta is over the same base, cumulatively.
	b.write(b.ino("a"), []byte("later"), 0)
	again := b.seal()
	if again.Checkpoint.ID == r.Checkpoint.ID || again.Checkpoint.Base != b.base.ID {
		t.Fatalf("%+v", again)
	}
	// A fork of a sealed checkpoint, whose inode numbers go on from there.
	b.open(r.Checkpoint.ID)
	if b.put(1, "after", nil) <= orphan {
		t.Fatal("an inode number was used again")
	}
	b.must(b.fork.Rename(root, 1, ".git", 1, "git", 0)) // all of it counts now
	last := b.seal()
	if last.Checkpoint.Parent != r.Checkpoint.ID || last.Checkpoint.Base != b.base.ID {
		t.Fatalf("%+v", last)
	}
	b.must(b.fork.Rename(root, 1, "dir", 1, ".git", 0)) // nothing of this any more
	b.seal()
}

func TestLargeDeltaIsFlattened(t *testing.T) {
	b := newBench(t, sample)
	for i := range 100 {
		b.put(1, fmt.Sprint("n", i), nil)
	}
	r := b.seal()
	if r.Checkpoint.Base != "" {
		t.Fatalf("%+v", r.Checkpoint)
	}
	if ents, _ := os.ReadDir(filepath.Join(b.store.Dir(), "images")); len(ents) != 2 {
		t.Fatal(ents)
	}
	b.open(r.Checkpoint.ID)
	b.put(1, "more", nil)
	if r2 := b.seal(); r2.Checkpoint.Base != r.Checkpoint.ID {
		t.Fatalf("%+v", r2.Checkpoint)
	}
}

// One byte of a large file: one chunk is hashed and stored.
func TestSealOfALargeFileReadsChangedChunks(t *testing.T) {
	b := newBench(t, sample)
	stored := func() (n int64) {
		filepath.Walk(filepath.Join(b.store.Dir(), "segments"), func(_ string, st os.FileInfo, _ error) error { n += st.Size(); return nil })
		return n
	}
	before := stored()
	b.write(b.ino("large"), []byte("X"), 5<<20)
	b.seal()
	if grown := stored() - before; grown > 1<<20+20000 {
		t.Errorf("%d bytes for one byte", grown)
	}
	_, err := b.fork.Setattr(root, b.ino("large"), overlay.SetAttr{Valid: overlay.SetSize, Size: 12<<20 + 5})
	b.must(err)
	b.write(b.ino("large"), []byte("tail"), 14<<20)
	b.seal()
	_, err = b.fork.Setattr(root, b.ino("large"), overlay.SetAttr{Valid: overlay.SetSize, Size: 100})
	b.must(err)
	b.seal()
	b.write(b.put(1, "new large", nil), bytes.Repeat([]byte{1, 2, 3}, 4<<20), 0)
	b.seal()
}

func TestRandomChangesSealToTheFork(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBench(t, sample)
		dirs := []uint64{1, 3, 6}
		name := func() string { return fmt.Sprint("n", r.IntN(12)) }
		for range 8 {
			for range r.IntN(40) {
				dir := dirs[r.IntN(len(dirs))]
				a, err := b.fork.Lookup(dir, name())
				switch r.IntN(8) {
				case 0, 1:
					if c, err := b.fork.Create(root, dir, name(), 0o644, false); err == nil {
						b.fork.Write(root, c.Ino, bytes.Repeat([]byte{byte(r.IntN(256))}, r.IntN(5000)), int64(r.IntN(3000)), false)
					}
				case 2:
					if c, err := b.fork.Mkdir(root, dir, name(), 0o755); err == nil {
						dirs = append(dirs, c.Ino)
					}
				case 3:
					b.fork.Unlink(root, dir, name())
					b.fork.Rmdir(root, dir, name())
				case 4:
					b.fork.Rename(root, dir, name(), dirs[r.IntN(len(dirs))], name(), uint32(r.IntN(2))*unix.RENAME_EXCHANGE)
				case 5:
					if err == nil {
						b.fork.Link(root, a.Ino, dirs[r.IntN(len(dirs))], name())
					}
				case 6:
					b.fork.Symlink(root, dir, name(), name())
				case 7:
					if err == nil {
						b.fork.Setattr(root, a.Ino, overlay.SetAttr{Valid: overlay.SetMode, Mode: uint32(r.IntN(0o1000))})
					}
				}
			}
			res := b.seal()
			if r.IntN(3) == 0 {
				b.open(res.Checkpoint.ID)
			}
			live := dirs[:0]
			for _, d := range dirs {
				if at, err := b.fork.Getattr(d); err == nil && at.Nlink > 0 {
					live = append(live, d)
				}
			}
			dirs = live
		}
	}
}

// L1: a failed seal publishes nothing; tried again, it works.
func TestL1_FailedSealPublishesNothing(t *testing.T) {
	b := newBench(t, sample)
	b.put(1, "x", []byte("y"))
	v, err := b.fork.Rotate(overlay.NewLayerID())
	b.must(err)
	defer v.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := View(ctx, b.store, v, Options{}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	list, err := b.store.List()
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	r, err := View(context.Background(), b.store, v, Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.same(v, r)
}
