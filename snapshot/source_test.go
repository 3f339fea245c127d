package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"tine/snapshot/content"
)

// repo is a source in memory, by the name in its configuration.
type repo struct {
	mu     sync.Mutex
	blobs  map[content.ID][]byte
	opened int
}

var repos sync.Map // name → *repo

func init() {
	RegisterSourceKind("test", func(config json.RawMessage) (Source, error) {
		var c struct{ Name string }
		if err := json.Unmarshal(config, &c); err != nil {
			return nil, err
		}
		r, ok := repos.Load(c.Name)
		if !ok {
			return nil, fmt.Errorf("repository %s is gone", c.Name)
		}
		return r.(*repo), nil
	})
}

func newRepo(t testing.TB, name string, blobs ...[]byte) *repo {
	r := &repo{blobs: map[content.ID][]byte{}}
	for _, b := range blobs {
		r.blobs[content.BlobID(b, content.SHA1)] = b
	}
	repos.Store(name, r)
	t.Cleanup(func() { repos.Delete(name) })
	return r
}

func (r *repo) Open(id content.ID) (content.Reader, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.blobs[id]
	if !ok {
		return nil, &content.MissingError{ID: id}
	}
	r.opened++
	return content.FromBytes(b), nil
}

func (r *repo) Close() error { return nil }

func TestO5_HydrationVerifiesAndKeeps(t *testing.T) {
	blobs := [][]byte{pattern(1, 10), pattern(2, inlineLimit+5), pattern(3, content.MaxSmall+9)}
	r := newRepo(t, t.Name(), blobs...)
	newRepo(t, t.Name()+"2")
	s := newStore(t)
	for _, name := range []string{t.Name() + "2", t.Name(), t.Name()} {
		if _, err := s.AddSource("test", map[string]string{"Name": name}); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := s.Sources(); err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	for _, b := range blobs {
		id := content.BlobID(b, content.SHA1)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if r, err := s.Open(id); err != nil {
					t.Error(err)
				} else if err := content.ReadFull(r, make([]byte, len(b)), 0); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if !bytes.Equal(readAll(t, s, id), b) {
			t.Fatal("other bytes")
		}
		if enc := readAll(t, s, id.Loose()); content.Verify(id.Loose(), enc) != nil {
			t.Fatal("derived bytes differ")
		}
	}
	if r.opened != len(blobs) {
		t.Errorf("the source was read %d times for %d contents", r.opened, len(blobs))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	repos.Delete(t.Name())
	s = openStore(t, s.Dir(), Options{})
	for _, b := range blobs {
		if !bytes.Equal(readAll(t, s, content.BlobID(b, content.SHA1)), b) {
			t.Fatal("other bytes")
		}
	}
	id := content.BlobID([]byte("not there"), content.SHA1)
	if _, err := s.Open(id); err == nil || !strings.Contains(err.Error(), id.String()) || !strings.Contains(err.Error(), "is gone") {
		t.Fatalf("the error should name the content and the lost repository: %v", err)
	}
}

func TestO5_SourceThatLiesIsFoundOut(t *testing.T) {
	r := newRepo(t, t.Name())
	s := newStore(t)
	s.AddSource("test", map[string]string{"Name": t.Name()})
	for _, n := range []int{100, inlineLimit + 1, content.MaxSmall + 1} {
		good := pattern(uint64(n), n)
		id := content.BlobID(good, content.SHA1)
		r.blobs[id] = append([]byte("x"), good[1:]...)
		var corrupt *content.CorruptError
		if _, err := s.Open(id); !errors.As(err, &corrupt) || corrupt.ID != id {
			t.Fatalf("%d: %v", n, err)
		}
		r.blobs[id] = good
		if !bytes.Equal(readAll(t, s, id), good) {
			t.Fatal("other bytes")
		}
	}
}

// Of several repositories that are gone, the error names those of the checkpoint.
func TestGoneSourcesOfACheckpoint(t *testing.T) {
	s := newStore(t)
	var sources []string
	for _, name := range []string{t.Name() + "-mine", t.Name() + "-other"} {
		id, err := s.AddSource("test", map[string]string{"Name": name})
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, id)
	}
	id := content.BlobID([]byte("lazy"), content.SHA1)
	_, err := s.Open(id)
	var gone *SourcesGoneError
	if !errors.As(err, &gone) || len(gone.Sources) != 2 {
		t.Fatalf("all that are gone: %v", err)
	}
	_, err = s.Contents(Checkpoint{Sources: sources[:1]}).Open(id)
	if err == nil || !strings.Contains(err.Error(), "-mine is gone; put the repository back") || strings.Contains(err.Error(), "-other") {
		t.Errorf("one that is gone: %v", err)
	}
	if a, b := s.Contents(Checkpoint{ID: "a", Sources: sources}), s.Contents(Checkpoint{ID: "b", Sources: sources}); a != b {
		t.Error("openers of the same sources differ")
	}
	newRepo(t, t.Name()+"-mine")
	s = openStore(t, s.Dir(), Options{})
	_, err = s.Contents(Checkpoint{Sources: sources[:1]}).Open(id)
	var missing *content.MissingError
	if !errors.As(err, &missing) || errors.As(err, &gone) || !strings.Contains(err.Error(), "has it no more") {
		t.Errorf("one that lost it: %v", err)
	}
	newRepo(t, t.Name()+"-other", []byte("lazy"))
	s = openStore(t, s.Dir(), Options{})
	if _, err = s.Contents(Checkpoint{Sources: sources[:1]}).Open(id); err != nil {
		t.Errorf("in another one: %v", err)
	}
}
