package registry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"tine/overlay"
	"tine/snapshot/durable"
)

func newRegistry(t *testing.T) *Registry {
	t.Helper()
	return Open(durable.OS, filepath.Join(t.TempDir(), "forks.log"))
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestReadingMakesNothing(t *testing.T) {
	r := newRegistry(t)
	if l := must(r.List())(t); len(l) != 0 {
		t.Fatalf("list: %v", l)
	}
	if _, err := r.Get("x"); !errors.As(err, new(*NotFoundError)) {
		t.Fatalf("get: %v", err)
	}
	if ents, _ := os.ReadDir(filepath.Dir(r.path)); len(ents) != 0 {
		t.Fatalf("made: %v", ents)
	}
}

func TestForksAreFoundByNameIDAndPrefix(t *testing.T) {
	r := newRegistry(t)
	a := must(r.Create(Fork{Base: "c1", Name: "work", Labels: map[string]string{"k": "v"}}))(t)[0]
	b := must(r.Create(Fork{Base: "c1", ID: strings.Repeat("ab", 16)}))(t)[0]
	must(r.Create(Fork{Base: "c1", ID: "abc" + strings.Repeat("0", 29)}))(t)
	other := Open(durable.OS, r.path)
	for _, ref := range []string{a.ID, "work"} {
		if got := must(other.Get(ref))(t); !reflect.DeepEqual(got, a) {
			t.Fatalf("got %+v want %+v", got, a)
		}
	}
	if got := must(other.Get("abab"))(t); got.ID != b.ID {
		t.Fatalf("prefix: %s", got.ID)
	}
	if _, err := other.Get("ab"); !errors.As(err, new(*AmbiguousError)) {
		t.Fatalf("ambiguous: %v", err)
	}
	if _, err := r.Create(Fork{Base: "c1", Name: "work"}); !errors.As(err, new(*NameTakenError)) {
		t.Fatalf("taken name: %v", err)
	}
	if n := len(must(r.List())(t)); n != 3 {
		t.Fatalf("%d forks after a refused one", n)
	}
	must(r.Update(a.ID, func(f *Fork) error { f.Name = ""; return nil }))(t)
	must(r.Create(Fork{Base: "c1", Name: "work"}))(t)
	if err := r.Remove(b.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Get(b.ID); !errors.As(err, new(*NotFoundError)) {
		t.Fatalf("removed: %v", err)
	}
}

func TestNestedForksShareLayers(t *testing.T) {
	r := newRegistry(t)
	f := must(r.Create(Fork{Base: "c"}))(t)[0]
	for range 300 {
		next := overlay.NewLayerID()
		if err := r.Rotate(f.ID, next); err != nil {
			t.Fatal(err)
		}
		f = must(r.Get(f.ID))(t)
		layers := append(f.Layers[:len(f.Layers)-1], overlay.NewLayerID())
		f = must(r.Create(Fork{Base: "c", Parent: f.ID, Layers: layers}))(t)[0]
	}
	if len(f.Layers) != 301 {
		t.Fatalf("%d layers", len(f.Layers))
	}
	st, _ := os.Stat(r.path)
	if st.Size() > 600*700 {
		t.Fatalf("log has %d bytes", st.Size())
	}
	if got := must(Open(durable.OS, r.path).Get(f.ID))(t); !reflect.DeepEqual(got, f) {
		t.Fatalf("got %+v", got)
	}
	if n := must(r.Layers())(t)[f.Layers[0]]; n != 301 {
		t.Fatalf("first layer is in %d forks", n)
	}
}

func TestEveryPrefixIsAStateOrCut(t *testing.T) {
	r := newRegistry(t)
	for i := range 5 {
		must(r.Create(Fork{Base: "c", Name: fmt.Sprint("n", i)}))(t)
	}
	all, _ := os.ReadFile(r.path)
	for n := range all {
		path := filepath.Join(t.TempDir(), "forks.log")
		os.WriteFile(path, all[:n], 0o644)
		p := Open(durable.OS, path)
		before := must(p.List())(t)
		must(p.Create(Fork{Base: "c", Name: "last"}))(t)
		if got := must(Open(durable.OS, path).List())(t); len(got) != len(before)+1 {
			t.Fatalf("prefix of %d: %d forks, then %d", n, len(before), len(got))
		}
	}
}

func TestDamageBeforeTheEndIsReported(t *testing.T) {
	r := newRegistry(t)
	must(r.Create(Fork{Base: "c"}, Fork{Base: "c"}))(t)
	all, _ := os.ReadFile(r.path)
	all[len(all)/2] ^= 1
	os.WriteFile(r.path, all, 0o644)
	p := Open(durable.OS, r.path)
	if _, err := p.List(); !errors.As(err, new(*CorruptError)) {
		t.Fatalf("list: %v", err)
	}
	if _, err := p.Create(Fork{Base: "c"}); !errors.As(err, new(*CorruptError)) {
		t.Fatalf("create: %v", err)
	}
}

func TestConcurrentWritersAndCompaction(t *testing.T) {
	r := newRegistry(t)
	keep := must(r.Create(Fork{Base: "c", Name: "keep"}))(t)[0]
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			own := Open(durable.OS, r.path)
			for range 150 {
				f, err := own.Create(Fork{Base: "c"})
				if err == nil {
					_, err = own.Update(keep.ID, func(f *Fork) error { f.Generation++; return nil })
				}
				if err == nil {
					err = own.Remove(f[0].ID)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	f := must(r.Get("keep"))(t)
	if l := must(r.List())(t); len(l) != 1 || f.Generation != 600 {
		t.Fatalf("%d forks, generation %d", len(l), f.Generation)
	}
	all, _ := os.ReadFile(r.path)
	if lines := strings.Count(string(all), "\n"); lines > 1100 {
		t.Fatalf("%d lines: never compacted", lines)
	}
}

func FuzzDecode(f *testing.F) {
	line, _ := (&record{Op: opHeader, Version: version}).encode()
	f.Add(line[:len(line)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			return
		}
		newTable().apply(r)
	})
}
