package sidecar

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"tine/overlay"
	"tine/overlay/registry"
)

// changedFork makes a fork of ref with a file in a layer of its own.
func changedFork(t *testing.T, h *Host, ref, name string) registry.Fork {
	t.Helper()
	made, err := h.CreateForks(context.Background(), ref, ForkRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	l, err := h.openLocal(made[0].Fork, false)
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.fork.Create(overlay.Caller{}, 1, "in-"+name, 0o644, true)
	if err == nil {
		_, err = l.fork.Write(overlay.Caller{}, a.Ino, make([]byte, 100<<10), 0, false)
	}
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := h.forks.Get(made[0].Fork)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A fork whose journal is damaged could not be removed, since it could not be opened.
func TestO6_DamagedForkCanBeRemoved(t *testing.T) {
	h, repo := testHost(t)
	ctx := context.Background()
	changedFork(t, h, "git:"+repo, "bad")
	f := changedFork(t, h, "bad", "worse")
	if len(f.Layers) < 2 {
		t.Fatalf("%d layers", len(f.Layers))
	}
	journal := filepath.Join(h.path("layers"), f.Layers[0].String(), "journal")
	if err := os.WriteFile(journal, make([]byte, 5000), 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := os.OpenFile(journal, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.WriteAt([]byte("damage"), 0)
	b.Close()
	if l, err := h.openLocal(f.ID, false); err == nil {
		l.Close()
		t.Fatal("opened")
	}
	for _, ref := range []string{"bad", "worse"} {
		if _, err := h.RemoveFork(ctx, ref, false); err != nil {
			t.Fatal(err)
		}
	}
	nothingLeft(t, h)
}

// Two removals at the same time of forks that share a layer each left it to the other.
func TestO6_ForksOfOneLayerRemovedAtOnceLeaveNothing(t *testing.T) {
	h, repo := testHost(t)
	for range 10 {
		changedFork(t, h, "git:"+repo, "parent")
		changedFork(t, h, "parent", "child")
		changedFork(t, h, "child", "grandchild")
		var wg sync.WaitGroup
		for _, ref := range []string{"parent", "child", "grandchild"} {
			wg.Go(func() {
				other, err := Open(Config{Store: h.dir})
				if err == nil {
					_, err = other.RemoveFork(context.Background(), ref, false)
					other.Close()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		nothingLeft(t, h)
	}
}

// fsck called a fork well whose stored bytes were damaged, and reading them gave wrong ones.
func TestO5_FsckReadsWhatForksStore(t *testing.T) {
	h, repo := testHost(t)
	ctx := context.Background()
	f := changedFork(t, h, "git:"+repo, "f")
	r, err := h.Fsck(ctx, FsckRequest{})
	if err != nil || len(r.Faults) > 0 {
		t.Fatal(r, err)
	}
	data := filepath.Join(h.path("layers"), f.Layers[0].String(), "data")
	if err := os.Truncate(data, 1000); err != nil {
		t.Fatal(err)
	}
	if r, err = h.Fsck(ctx, FsckRequest{}); err != nil || len(r.Faults) != 1 {
		t.Fatal(r, err)
	}
	if r, err = h.Fsck(ctx, FsckRequest{Quick: true}); err != nil || len(r.Faults) > 0 {
		t.Fatal(r, err)
	}
	if _, err := h.RemoveFork(ctx, "f", false); err != nil {
		t.Fatal(err)
	}
}
