package gitimport

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The workspace's status is the source's, but for what was staged.
func TestDirty(t *testing.T) {
	src := sample(t)
	write(t, src+"/.gitignore", "*.log\n/build/\n!keep.log\n", 0o644)
	git(t, src, "add", ".gitignore")
	git(t, src, "commit", "-q", "-m", "ignores")
	write(t, src+"/README", "edited\n", 0o644)
	write(t, src+"/untracked.txt", "u\n", 0o644)
	write(t, src+"/x.log", "ignored\n", 0o644)
	write(t, src+"/sub/keep.log", "kept\n", 0o755)
	write(t, src+"/build/out.o", "ignored\n", 0o644)
	write(t, src+"/build/forced.txt", "tracked though ignored\n", 0o644)
	git(t, src, "add", "-f", "build/forced.txt")
	os.Remove(src + "/src/a.txt")
	os.Chmod(src+"/empty", 0o755)
	os.Remove(src + "/link")
	os.Symlink("elsewhere", src+"/link")
	os.MkdirAll(src+"/void", 0o755)
	os.MkdirAll(src+"/onlyignored", 0o755)
	write(t, src+"/onlyignored/a.log", "", 0o644)
	unix.Mkfifo(src+"/fifo", 0o644)
	git(t, src, "init", "-q", src+"/nested")
	write(t, src+"/nested/file", "n\n", 0o644)
	os.MkdirAll(src+"/modules/sub", 0o755)
	when := unix.Timespec{Sec: 1600000000, Nsec: 123456789}
	unix.UtimesNanoAt(unix.AT_FDCWD, src+"/README", []unix.Timespec{when, when}, 0)

	s := newStore(t)
	res := mustImport(t, s, Request{Repo: src, Dirty: true})
	dir := exported(t, s, res.ID)
	want := strings.Join([]string{" M README", " M empty", " M link", " D src/a.txt", "?? build/forced.txt", "?? sub/keep.log", "?? untracked.txt"}, "\n")
	git(t, dir, "config", "advice.addIgnoredFile", "false")
	got := git(t, dir, "status", "--porcelain", "--untracked-files=all", "--no-renames")
	// build/forced.txt is ignored in the workspace, where it isn't in the index.
	if got = got + "\n"; strings.Replace(want, "?? build/forced.txt\n", "", 1)+"\n" != got {
		t.Errorf("status:\n%s", got)
	}
	fsck(t, dir)
	for path, there := range map[string]bool{
		"x.log": false, "build/out.o": false, "build/forced.txt": true, "sub/keep.log": true, "void": true, "onlyignored": false, "fifo": false,
		"nested": false, "modules/sub": true, "src/a.txt": false, "src/a/b/c/deep.txt": true,
	} {
		if _, err := os.Lstat(dir + "/" + path); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
	files, _ := s.Files(res.ID)
	n, _ := lookup(t, files, "README")
	if readNode(t, files, n) != "edited\n" || n.Mtime.Sec != when.Sec || int64(n.Mtime.Nsec) != when.Nsec {
		t.Errorf("README: %+v", n)
	}
	if n, _ := lookup(t, files, "bin/run.sh"); n.Mtime.Sec != 1700000100 {
		t.Errorf("an unchanged file has the time %v", n.Mtime)
	}
	if len(res.Warnings) != 2 || !strings.Contains(res.Warnings[0], "1 FIFO") || !strings.Contains(res.Warnings[1], "nested") {
		t.Errorf("warnings %q", res.Warnings)
	}
	if sub, _ := lookup(t, files, "modules/sub"); len(sub.Gitlink) != 20 {
		t.Errorf("submodule: %+v", sub)
	}

	// With a subpath and exclusions.
	res = mustImport(t, s, Request{Repo: src, Dirty: true, Subpath: "src", Exclude: []string{"*.txt"}})
	if res.Files != 0 {
		t.Errorf("%d files", res.Files)
	}
}

// A clean work tree is the commit.
func TestDirtyOfACleanTree(t *testing.T) {
	src := sample(t)
	os.Remove(src + "/old") // git mv leaves it; an empty directory is part of a work tree as it is
	for _, opt := range []Request{{}, {Subpath: "src"}, {Exclude: []string{"tests"}}, {Depth: 2}} {
		opt.Repo = src
		a := mustImport(t, newStore(t), opt)
		opt.Dirty = true
		b := mustImport(t, newStore(t), opt)
		if a.ID != b.ID {
			t.Errorf("%+v: %s, dirty %s", opt, a.ID, b.ID)
		}
	}
	linked := t.TempDir() + "/linked"
	git(t, src, "worktree", "add", "-q", "--detach", linked, "HEAD~1")
	a := mustImport(t, newStore(t), Request{Repo: src, Rev: "HEAD~1"})
	if b := mustImport(t, newStore(t), Request{Repo: linked, Dirty: true}); a.ID != b.ID {
		t.Errorf("linked worktree: %s, dirty %s", a.ID, b.ID)
	}
}

// Random work trees and ignore files: what is taken is what git says is tracked, or untracked and not ignored.
func TestDirtyTakesWhatGitLists(t *testing.T) {
	seed := rand.Int63()
	rnd := rand.New(rand.NewSource(seed))
	pick := func(list ...string) string { return list[rnd.Intn(len(list))] }
	for round := range 25 {
		src := t.TempDir()
		git(t, src, "init", "-q", "-b", "main")
		dirs := []string{"", "a/", "b/", "a/b/", "a/b/c/"}
		for i := range 30 {
			write(t, src+"/"+pick(dirs...)+fmt.Sprintf("%s%d%s", pick("x", "y", "z"), i%7, pick(".o", ".c", ".log", "")), fmt.Sprint(i), 0o644)
		}
		git(t, src, "add", "-A")
		git(t, src, "commit", "-q", "-m", "x", "--allow-empty")
		for range 3 {
			text := ""
			for range 1 + rnd.Intn(5) {
				text += pick("", "", "!") + pick("", "", "/", "**/") + pick("*", "x*", "y?.o", "a", "b", "b/c", "*.log", "[xy]*", "a/**", "a/b/*") + pick("", "", "/") + "\n"
			}
			write(t, src+"/"+pick(dirs...)+".gitignore", text, 0o644)
		}
		for i := range 20 {
			write(t, src+"/"+pick(dirs...)+fmt.Sprintf("new%s%d%s", pick("x", "y", ""), i%7, pick(".o", ".c", ".log")), fmt.Sprint(i), 0o644)
		}
		want := strings.Split(git(t, src, "ls-files", "-c", "-o", "--exclude-standard"), "\n")
		sort.Strings(want)
		s := newStore(t)
		dir := exported(t, s, mustImport(t, s, Request{Repo: src, Dirty: true}).ID)
		os.RemoveAll(dir + "/.git")
		git(t, dir, "init", "-q")
		git(t, dir, "add", "-A", "-f")
		got := strings.Split(git(t, dir, "ls-files"), "\n")
		sort.Strings(got)
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("seed %d, round %d:\n%q\nwant\n%q", seed, round, got, want)
		}
	}
}

// Indexes of all kinds that git writes.
func TestDirtyReadsIndexes(t *testing.T) {
	src := sample(t)
	os.Remove(src + "/old")
	want := mustImport(t, newStore(t), Request{Repo: src}).ID
	for _, args := range []string{
		"update-index --index-version 3", "update-index --index-version 4", "update-index --untracked-cache", "update-index --index-version 2", "config index.skipHash true",
		"config index.threads 3", "update-index --assume-unchanged README", "update-index --skip-worktree src/a.txt", "add -N new", "rm -q --cached new",
	} {
		if strings.HasPrefix(args, "add -N") {
			write(t, src+"/new", "", 0o644)
		}
		git(t, src, strings.Fields(args)...)
		if strings.HasPrefix(args, "rm") {
			os.Remove(src + "/new")
		}
		git(t, src, "status")
		got := mustImport(t, newStore(t), Request{Repo: src, Dirty: true}).ID
		if _, err := os.Lstat(src + "/new"); (got == want) != (err != nil) {
			t.Errorf("after git %s: %s, want %s", args, got, want)
		}
	}
	var bad *FormatError
	for _, args := range []string{"update-index --split-index", "sparse-checkout set --cone --sparse-index src"} {
		git(t, src, "update-index", "--no-split-index")
		git(t, src, strings.Fields(args)...)
		if _, err := Import(context.Background(), newStore(t), Request{Repo: src, Dirty: true}); !errors.As(err, &bad) {
			t.Errorf("after git %s: %v", args, err)
		}
	}
}

func FuzzIndexFile(f *testing.F) {
	f.Add(encodeIndex([]tracked{{path: "a", mode: modeFile}, {path: "b/c", mode: modeExec}}, &cacheTree{}))
	f.Fuzz(func(t *testing.T, b []byte) { parseIndexFile(b) })
}
