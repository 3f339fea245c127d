package gitimport

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
