package snapshot

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

	"tine/snapshot/content"
	"tine/snapshot/durable"
	"tine/snapshot/durable/fault"
	"tine/snapshot/image/imagetest"
)

// scenario is a store's life from nothing to a tagged checkpoint of small contents, an object and, if asked, a chunked one.
type scenario struct {
	dir   string
	large bool
}

var scenarioRepo = [][]byte{pattern(71, 3000), pattern(72, inlineLimit+3000)}

// run does all of it; what was done before is done again.
func (sc scenario) run(t *testing.T, fsys durable.FS) (id string, err error) {
	s, err := Open(sc.dir, Options{Create: true, FS: fsys})
	if err != nil {
		return "", err
	}
	defer func() {
		if cerr := s.Close(); err == nil {
			err = cerr
		}
	}()
	if _, err := s.AddSource("test", map[string]string{"Name": "scenario"}); err != nil {
		return "", err
	}
	for _, b := range scenarioRepo { // hydration never fails a reader
		id := content.BlobID(b, content.SHA1)
		r, err := s.Open(id)
		if err != nil {
			return "", err
		}
		got, err := content.ReadAll(r, 1<<30)
		r.Close()
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("hydration gave %d bytes, %v", len(got), err)
		}
	}
	h, err := s.Shared(context.Background())
	if err != nil {
		return "", err
	}
	defer h.Release()
	entries := []imagetest.Entry{
		imagetest.File("a", "hello", 0o644), imagetest.File("b", string(pattern(7, 20000)), 0o644),
		imagetest.File("object", string(pattern(8, inlineLimit+777)), 0o644), imagetest.File("hydrated", string(scenarioRepo[1]), 0o644),
	}
	_, b := imagetest.Builder(t, entries...)
	for _, e := range entries {
		if _, err := s.Put([]byte(e.Data), content.SHA1); err != nil {
			return "", err
		}
	}
	if sc.large {
		if _, err := s.Put(scenarioLarge, content.SHA1); err != nil {
			return "", err
		}
	}
	enc, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Publish(context.Background(), Draft{Image: enc, Provenance: Provenance{Kind: "test"}})
	if err != nil {
		return "", err
	}
	return c.ID, s.Tag(c.ID, "named", false)
}

var scenarioLarge = pattern(9, content.MaxSmall+content.ChunkSize+1)

// check: what is published is there as a whole.
func (sc scenario) check(t *testing.T, complete bool, large bool) {
	t.Helper()
	s, err := Open(sc.dir, Options{ReadOnly: true})
	if errors.Is(err, ErrNoStore) && !complete {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 && complete {
		t.Fatal("the published checkpoint is gone")
	}
	for _, c := range list {
		f, err := s.Files(c.ID)
		if err != nil {
			t.Fatal(err)
		}
		m, _ := s.Tree(c.ID)
		if err := m.Verify(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b", "object", "hydrated"} {
			d, err := f.Lookup(1, name)
			if err != nil {
				t.Fatal(err)
			}
			n, _ := f.Node(d.Ino)
			r, err := f.OpenFile(n)
			if err != nil {
				t.Fatalf("%s of a published checkpoint: %v", name, err)
			}
			b, err := content.ReadAll(r, 1<<20)
			if err != nil || content.Verify(n.Content, b) != nil {
				t.Fatalf("%s of a published checkpoint: %v", name, err)
			}
			r.Close()
		}
		if large {
			if got := readAll(t, s, content.HashBytes(scenarioLarge, content.SHA1).ID); !bytes.Equal(got, scenarioLarge) {
				t.Fatal("the large content differs")
			}
		}
	}
	names, err := s.Names()
	if err != nil || complete && len(names) != 1 {
		t.Fatal(names, err)
	}
	for _, n := range names {
		if len(list) != 1 || n.Checkpoint != list[0].ID {
			t.Fatal("a name of nothing: ", n)
		}
	}
}

// memoryDir is a temporary directory whose syncs cost nothing, where there is one: what a sync does to a disk is not what these
// tests are about.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "tine-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Each operation of a store's life fails in each way, once or from then on. What was published is whole; doing it again
// succeeds.
func TestL1_EachOperationFails(t *testing.T) {
	newRepo(t, "scenario", scenarioRepo...)
	for _, when := range []fault.When{fault.Before, fault.Half, fault.After} {
		for _, sticky := range []bool{false, true} {
			if sticky && when != fault.Before {
				continue // as the first failure, then as Before
			}
			n := 1
			for ; ; n++ {
				large := when == fault.Half && n%3 == 0
				sc := scenario{filepath.Join(memoryDir(t), "store"), large}
				f := fault.New(durable.OS)
				if sticky {
					f.FailFrom(n, when, unix.ENOSPC)
				} else {
					f.FailAt(n, when, unix.EIO)
				}
				_, err := sc.run(t, f)
				failed := f.Failed()
				f.Heal()
				sc.check(t, err == nil, err == nil && large)
				if _, err := sc.run(t, durable.OS); err != nil {
					t.Fatalf("operation %d failed, and so does the next try: %v", n, err)
				}
				sc.check(t, true, large)
				os.RemoveAll(sc.dir)
				if !failed {
					break
				}
			}
			if n < 20 {
				t.Errorf("only %d operations", n)
			}
		}
	}
}

// After each recorded operation the power fails.
func TestO3_PowerCut(t *testing.T) {
	newRepo(t, "scenario", scenarioRepo...)
	root := memoryDir(t)
	sc := scenario{dir: filepath.Join(root, "store")}
	f := fault.New(durable.OS)
	rec, err := f.Record(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sc.run(t, f); err != nil {
		t.Fatal(err)
	}
	os.Mkdir(root+"-cut", 0o700)
	t.Cleanup(func() { os.RemoveAll(root + "-cut") })
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for n := 0; n <= rec.Len(); n++ {
		for seed := range seeds {
			var rng *rand.Rand
			if seed > 0 {
				rng = rand.New(rand.NewPCG(seed, uint64(n)))
			}
			cut := filepath.Join(root+"-cut", fmt.Sprint("cut", n, seed))
			if err := rec.Cut(cut, n, rng); err != nil {
				t.Fatal(err)
			}
			after := scenario{dir: filepath.Join(cut, "store")}
			after.check(t, n == rec.Len(), false)
			if seed == 0 || n%5 == 0 {
				if _, err := after.run(t, durable.OS); err != nil {
					t.Fatalf("cut after %d: the store is of no use any more: %v", n, err)
				}
				after.check(t, true, false)
			}
			os.RemoveAll(cut)
		}
	}
}

// A command that only reads doesn't end with a sync of what it has hydrated; nor is that lost.
func TestHydrationIsNotSynced(t *testing.T) {
	data := pattern(1, 1000)
	newRepo(t, t.Name(), data)
	dir := filepath.Join(t.TempDir(), "store")
	s := openStore(t, dir, Options{Create: true})
	if _, err := s.AddSource("test", map[string]string{"Name": t.Name()}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	f := fault.New(durable.OS)
	f.FailIf(func(op fault.Op) error {
		if op.Kind == fault.Datasync || op.Kind == fault.Sync {
			return unix.EIO
		}
		return nil
	})
	s = openStore(t, dir, Options{FS: f})
	id := content.BlobID(data, content.SHA1)
	readAll(t, s, id)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	repos.Delete(t.Name())
	readAll(t, openStore(t, dir, Options{ReadOnly: true}), id)
	s = openStore(t, dir, Options{}) // the next writer takes the segment over, the content with it
	hold(t, s)
	if _, err := s.Put(data, content.SHA1); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if !openStore(t, dir, Options{ReadOnly: true}).Has(id) {
		t.Fatal("not published")
	}
	if segs, _ := filepath.Glob(filepath.Join(dir, "segments", "*.seg")); len(segs) != 1 {
		t.Fatal(segs)
	}
}
