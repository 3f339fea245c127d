package gitimport

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine/snapshot/gitimport/objects"
)

// An import of a repository in which a FIFO, a device or a file without an end lies where git has a small file waited
// for ever or took all memory.
func TestFilesOfARepositoryThatAreNone(t *testing.T) {
	plant := map[string]func(path string) error{
		"FIFO":      func(p string) error { return unix.Mkfifo(p, 0o644) },
		"/dev/zero": func(p string) error { return os.Symlink("/dev/zero", p) },
		"8 GiB": func(p string) error {
			if err := os.WriteFile(p, nil, 0o644); err != nil {
				return err
			}
			return os.Truncate(p, 8<<30)
		},
	}
	for _, name := range []string{"HEAD", "config", "commondir", "shallow", "packed-refs", "refs/heads/trunk", "objects/info/alternates", "index"} {
		for what, put := range plant {
			src := sample(t)
			git(t, src, "pack-refs", "--all") // so that a reference can be missing
			path := filepath.Join(src, ".git", name)
			os.Remove(path)
			os.MkdirAll(filepath.Dir(path), 0o755)
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			s := newStore(t)
			done := start(func() error {
				_, err := Import(context.Background(), s, Request{Repo: src, Dirty: true})
				return err
			})
			select {
			case err := <-done:
				if err == nil {
					t.Errorf("%s is %s: imported", name, what)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s is %s: still waiting", name, what)
			}
		}
	}
}

func start(fn func() error) chan error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return done
}

// nest commits a tree of n levels, each of which names the one below width times, with
// names of so many bytes.
func nest(t *testing.T, dir string, n, width, name int) {
	t.Helper()
	id := objects.HashObject(objects.Blob, []byte("x"))
	mode := uint32(modeFile)
	git(t, dir, "config", "gc.auto", "0")
	write(t, dir+"/x", "x", 0o644)
	git(t, dir, "hash-object", "-w", "x")
	for range n {
		var entries []entry
		for k := range width {
			entries = append(entries, entry{mode: mode, name: strings.Repeat(string(rune('a'+k)), name), id: id})
		}
		raw := encodeTree(entries)
		id, mode = objects.HashObject(objects.Tree, raw), modeTree
		looseObject(t, dir, objects.Tree, id, raw)
	}
	commit := git(t, dir, "commit-tree", "-m", "nested", id.String())
	git(t, dir, "update-ref", "HEAD", commit)
}

func looseObject(t *testing.T, dir string, typ objects.Type, id objects.ID, raw []byte) {
	t.Helper()
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	fmt.Fprintf(w, "%s %d\x00%s", typ, len(raw), raw)
	w.Close()
	hx := id.String()
	path := filepath.Join(dir, ".git", "objects", hx[:2], hx[2:])
	os.MkdirAll(filepath.Dir(path), 0o755)
	if err := os.WriteFile(path, z.Bytes(), 0o444); err != nil {
		t.Fatal(err)
	}
}

// Small repositories whose trees stand for more than memory holds: very deep ones, and ones that name each other.
func TestTreesThatStandForTooMuch(t *testing.T) {
	defer func(n int) { maxItems = n }(maxItems)
	maxItems = 5000
	deep := sample(t)
	nest(t, deep, 100, 1, 200)
	_, err := Import(context.Background(), newStore(t), Request{Repo: deep})
	if !errors.As(err, new(*PathError)) {
		t.Errorf("deep: %v", err)
	}
	wide := sample(t)
	nest(t, wide, 8, 8, 1)
	_, err = Import(context.Background(), newStore(t), Request{Repo: wide})
	if !errors.As(err, new(*FormatError)) {
		t.Errorf("wide: %v", err)
	}
}
