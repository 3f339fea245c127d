package testrepo

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestLargeHasExactlyTheFiles(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a.git"), filepath.Join(t.TempDir(), "b.git")
	for _, dir := range []string{a, b} {
		if err := Large(dir, 1500); err != nil {
			t.Fatal(err)
		}
	}
	git := func(dir string, args ...string) string {
		t.Helper()
		out, err := Git(dir, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if n := strings.Count(git(a, "ls-tree", "-r", "main")+"\n", "\n"); n != 1500 {
		t.Errorf("%d files, want 1500", n)
	}
	if n := git(a, "rev-list", "--count", "main"); n != "4" {
		t.Errorf("%s commits, want 4", n)
	}
	if x, y := git(a, "rev-parse", "main"), git(b, "rev-parse", "main"); x != y {
		t.Errorf("two makings, two commits: %s, %s", x, y)
	}
	git(a, "fsck", "--strict")
	n, err := DamageBlobs(a, 1<<20)
	if err != nil || n < 1400 {
		t.Fatalf("%d blobs damaged: %v", n, err)
	}
	if _, err := Git(a, "cat-file", "-p", "main:README.md"); err == nil {
		t.Error("a damaged blob could be read")
	}
	git(a, "cat-file", "-s", "main:README.md")
	git(a, "log", "--stat", "--no-renames", "--format=%H", "--name-only")
}
