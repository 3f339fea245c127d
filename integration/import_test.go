package integration

import (
	"os"
	"path/filepath"
	"testing"

	"tine/integration/manifest"
)

// TestImportOptions: each option's tree is the one that git computes for the same selection.
func TestImportOptions(t *testing.T) {
	l := newLab(t)
	repo := l.smallRepo("repo")
	l.shell(repo, `
		echo changed >>README.md; rm run.sh; echo u >untracked; mkdir ud; echo u >ud/f; echo o >ignored.o; git add -N ud/f
		echo staged >staged; git add staged`)
	dirty := l.shell(repo, `export GIT_INDEX_FILE="$PWD/../index"; git read-tree HEAD; git add -A; git write-tree; rm ../index`)
	plain := l.revTree(repo, "HEAD")
	sub := l.shell(repo, "git rev-parse HEAD:src")
	for _, c := range []struct {
		name, tree string
		args       []string
	}{
		{"HEAD, whatever the work tree is", plain, nil},
		{"a branch", l.revTree(repo, "other"), []string{"other"}},
		{"an ancestor", l.revTree(repo, "main~1"), []string{"main~1"}},
		{"depth", plain, []string{"--depth", "2"}},
		{"full history", plain, []string{"--full-history"}},
		{"the work tree", dirty, []string{"--dirty"}},
		{"a sub-path", sub, []string{"--subpath", "src"}},
		{"without docs", l.shell(repo, `export GIT_INDEX_FILE="$PWD/../index"; git read-tree HEAD; git rm -q -r --cached docs; git write-tree; rm ../index`), []string{"--exclude", "docs"}},
		{"without C", l.shell(repo, `export GIT_INDEX_FILE="$PWD/../index"; git read-tree HEAD; git rm -q --cached src/main.c; git write-tree; rm ../index`), []string{"--exclude", "*.c"}},
	} {
		i := l.importGit(append([]string{repo}, c.args...)...)
		if i.Tree != c.tree {
			t.Errorf("%s: tree %s, git says %s", c.name, i.Tree, c.tree)
		}
		m := l.path("m")
		s := l.mount(l.fork(i.Checkpoint), m)
		// The work tree's changes are as uncommitted in the fork as they were in the source.
		want := ""
		if c.tree == dirty {
			want = " M README.md\n D run.sh\n?? staged\n?? ud/\n?? untracked"
		}
		if out := l.shell(m, "git status --porcelain"); out != want {
			t.Errorf("%s: git status in the fork: %s", c.name, out)
		}
		l.shell(m, "git fsck --full --strict; git log >/dev/null")
		s.stop()
	}
}

// TestImportDirOfTheStoreItself (case 26): a tree that holds the store or one of our mounts is refused.
func TestImportDirOfTheStoreItself(t *testing.T) {
	l := newLab(t)
	dir := l.mkdir("dir")
	l.shell(dir, "echo x >f")
	c := l.importDir(dir).Checkpoint
	inside := *l
	inside.store = filepath.Join(dir, "store")
	if r := inside.run("import", "dir", dir); r.status == 0 {
		t.Error("imported the store into itself")
	}
	_ = os.RemoveAll(inside.store)
	s := l.mount(l.fork(c), filepath.Join(dir, "m"))
	if r := l.run("import", "dir", dir); r.status == 0 {
		t.Error("imported a tree with a mounted fork in it")
	}
	l.shell(l.dir, "timeout 20 ls -R dir >/dev/null")
	s.stop()
	l.must(os.Remove(s.dir))
	if again := l.importDir(dir); again.Tree != l.treeOf(c) {
		t.Error("another tree for the same directory")
	}
}

// TestSourceMayChange (case 23): after the import the source directory is changed while forks are used; they stay.
func TestSourceMayChange(t *testing.T) {
	l := newLab(t)
	dir := l.mkdir("dir")
	l.shell(dir, "for i in $(seq 50); do seq $i 2000 >f$i; done")
	fork := l.fork(l.importDir(dir).Checkpoint)
	want := l.manifest(dir)
	l.shell(dir, "for i in $(seq 50); do echo changed >f$i; done; rm f7; echo new >g")
	s := l.mount(fork, l.path("m"))
	l.same("at the import", want, "workspace", l.manifest(s.dir), manifest.Rules{})
	s.stop()
}
