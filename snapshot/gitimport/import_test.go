package gitimport

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tine/snapshot/image"
)

func TestWorkspaceGitIsClean(t *testing.T) {
	src := sample(t)
	for _, packed := range []bool{false, true} {
		if packed {
			git(t, src, "gc", "-q", "--prune=now")
		}
		s := newStore(t)
		res := mustImport(t, s, Request{Repo: src})
		if want := git(t, src, "rev-parse", "HEAD^{tree}"); res.TreeID != want {
			t.Errorf("tree %s, want %s", res.TreeID, want)
		}
		if res.SourceCommit != git(t, src, "rev-parse", "HEAD") || res.WorkspaceCommit != res.SourceCommit || res.Commit != res.SourceCommit {
			t.Errorf("commits %s %s %s", res.SourceCommit, res.WorkspaceCommit, res.Commit)
		}
		dir := exported(t, s, res.ID)
		cleanGit(t, dir)
		if got := sourceFiles(t, dir, "HEAD"); got != sourceFiles(t, src, "HEAD") {
			t.Errorf("files differ:\n%s", got)
		}
		if out := git(t, dir, "log", "--format=%s %d"); out != "third  (grafted, HEAD -> main)" {
			t.Errorf("log: %q", out)
		}
		if git(t, dir, "rev-list", "--all", "--count") != "1" {
			t.Error("more than one commit")
		}
		git(t, dir, "diff", "--exit-code")
		git(t, dir, "diff", "--cached", "--exit-code")
		if got := git(t, dir, "write-tree"); got != res.TreeID {
			t.Errorf("write-tree %s", got)
		}
	}
}

// The system's git must be able to work on: commit, branch, stash, gc.
func TestWorkspaceGitWorksOn(t *testing.T) {
	src := sample(t)
	s := newStore(t)
	dir := exported(t, s, mustImport(t, s, Request{Repo: src, FullHistory: true}).ID)
	write(t, dir+"/README", "changed\n", 0o644)
	write(t, dir+"/new.txt", "new\n", 0o644)
	if out := git(t, dir, "status", "--porcelain"); out != " M README\n?? new.txt" {
		t.Errorf("status:\n%s", out)
	}
	git(t, dir, "stash", "-u")
	cleanGit(t, dir)
	git(t, dir, "stash", "pop")
	git(t, dir, "checkout", "-q", "-b", "topic")
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "mine")
	git(t, dir, "checkout", "-q", "main")
	git(t, dir, "merge", "-q", "topic")
	git(t, dir, "gc", "-q", "--prune=now")
	cleanGit(t, dir)
	git(t, dir, "checkout", "-q", "HEAD~3")
	if b, err := os.ReadFile(dir + "/old/secret.txt"); err != nil || string(b) != "the answer is 42\n" {
		t.Errorf("old commit: %q %v", b, err)
	}
	cleanGit(t, dir)
}

func TestDepths(t *testing.T) {
	src := sample(t)
	s := newStore(t)
	for _, c := range []struct {
		req     Request
		commits string
		shallow bool
	}{
		{Request{Repo: src}, "1", true},
		{Request{Repo: src, Depth: 2}, "2", true},
		{Request{Repo: src, Depth: 3}, "3", false},
		{Request{Repo: src, Depth: 9}, "3", false},
		{Request{Repo: src, FullHistory: true}, "3", false},
		{Request{Repo: src, Rev: "v1"}, "1", true},
		{Request{Repo: src, Rev: "trunk~2"}, "1", false},
	} {
		dir := exported(t, s, mustImport(t, s, c.req).ID)
		cleanGit(t, dir)
		if n := git(t, dir, "rev-list", "--count", "HEAD"); n != c.commits {
			t.Errorf("%+v: %s commits", c.req, n)
		}
		if _, err := os.Stat(dir + "/.git/shallow"); (err == nil) != c.shallow {
			t.Errorf("%+v: shallow: %v", c.req, err)
		}
		// Everything in the object database is reachable, and nothing reachable is missing.
		if out := git(t, dir, "fsck", "--unreachable", "--no-reflogs"); out != "" {
			t.Errorf("%+v: %s", c.req, out)
		}
	}
}

// L3: one commit, one id: from other places, packings, times, branch names, and by other spellings of the revision.
func TestL3_OneCommitOneCheckpoint(t *testing.T) {
	src := sample(t)
	for _, opt := range []Request{{}, {Depth: 2}, {FullHistory: true}, {Exclude: []string{"tests"}}, {Subpath: "src"}, {Eager: true}} {
		first := opt
		first.Repo = src
		want := mustImport(t, newStore(t), first)
		other := filepath.Join(t.TempDir(), "clone")
		git(t, src, "clone", "-q", "--no-local", "-b", "trunk", src, other)
		git(t, other, "gc", "-q", "--aggressive")
		git(t, other, "branch", "-m", "renamed")
		git(t, other, "config", "user.name", "Somebody Else")
		for _, rev := range []string{"", "HEAD", "renamed", "refs/heads/renamed", want.SourceCommit, want.SourceCommit[:10], "origin/trunk", "@"} {
			again := opt
			again.Repo, again.Rev = other, rev
			if got := mustImport(t, newStore(t), again); got.ID != want.ID || got.TreeID != want.TreeID {
				t.Errorf("%+v: checkpoint %s, want %s", again, got.ID, want.ID)
			}
		}
	}
	// Lazy and eager are one checkpoint too: where bytes come from is not in the id.
	a, b := mustImport(t, newStore(t), Request{Repo: src}), mustImport(t, newStore(t), Request{Repo: src, Eager: true})
	if a.ID != b.ID {
		t.Errorf("lazy %s, eager %s", a.ID, b.ID)
	}
}

func TestNodes(t *testing.T) {
	src := sample(t)
	s := newStore(t)
	res := mustImport(t, s, Request{Repo: src})
	files, err := s.Files(res.ID)
	if err != nil {
		t.Fatal(err)
	}
	when := image.Time{Sec: 1700000100}
	for path, mode := range map[string]uint32{
		"README": unix.S_IFREG | 0o644, "bin/run.sh": unix.S_IFREG | 0o755, "bin": unix.S_IFDIR | 0o755, "link": unix.S_IFLNK | 0o777,
		"empty": unix.S_IFREG | 0o644, "odd \xff\n\"name": unix.S_IFREG | 0o644, "modules/sub": unix.S_IFDIR | 0o755, ".git": unix.S_IFDIR | 0o755,
	} {
		n, ok := lookup(t, files, path)
		if !ok || n.Mode != mode || n.UID != 0 || n.GID != 0 || n.Mtime != when || n.Ctime != when || n.Btime != when {
			t.Errorf("%s: %v %+v", path, ok, n)
		}
	}
	sub, _ := lookup(t, files, "modules/sub")
	if got := string(sub.Gitlink); got != "\x12\x34\x56\x78\x90\x12\x34\x56\x78\x90\x12\x34\x56\x78\x90\x12\x34\x56\x78\x90" {
		t.Errorf("gitlink %x", got)
	}
	if n, _ := files.NumEntries(sub.Ino); n != 0 {
		t.Errorf("the submodule has %d entries", n)
	}
	index, _ := lookup(t, files, ".git/index")
	if index.Mtime.Sec < when.Sec+1 {
		t.Errorf("index of %d, files of %d", index.Mtime.Sec, when.Sec)
	}
	if res.Files != 9 {
		t.Errorf("%d files", res.Files)
	}
}

// DESIGN "Git workspaces": the index's stat data are those of the fork, so that the first status re-hashes nothing.
func TestFirstStatusReadsNoTrackedFile(t *testing.T) {
	src := sample(t)
	s := newStore(t)
	res := mustImport(t, s, Request{Repo: src})
	dir := exported(t, s, res.ID)
	files, err := s.Files(res.ID)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := lookup(t, files, "bin/run.sh")
	debug := git(t, dir, "ls-files", "--debug", "bin/run.sh")
	for _, want := range []string{
		"ctime: 1700000100:0", "mtime: 1700000100:0", "uid: 0\tgid: 0", "size: 19",
	} {
		if !strings.Contains(debug, want) {
			t.Errorf("no %q in\n%s", want, debug)
		}
	}
	if !strings.Contains(debug, fmt.Sprintf("ino: %d", n.Ino)) {
		t.Errorf("inode %d isn't in\n%s", n.Ino, debug)
	}
	// Contents that differ while stat data are the same: had git read them, it would say so.
	for _, f := range []string{"README", "bin/run.sh", "src/a/b/c/deep.txt"} {
		n, _ := lookup(t, files, f)
		if err := os.WriteFile(dir+"/"+f, []byte(strings.Repeat("x", int(n.Size))), 0o644); err != nil {
			t.Fatal(err)
		}
		ts := []unix.Timespec{{Sec: n.Mtime.Sec}, {Sec: n.Mtime.Sec}}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, dir+"/"+f, ts, 0); err != nil {
			t.Fatal(err)
		}
	}
	if out := git(t, dir, "status", "--porcelain"); out != "" {
		t.Errorf("git has read files:\n%s", out)
	}
}

// S11: nothing but what the selected commit reaches at the requested depth.
func TestS11_HistoryFence(t *testing.T) {
	src := sample(t)
	secrets := map[string]string{}
	note := func(name, args string) {
		write(t, src+"/leak-"+name, "leak of "+name+"\n", 0o644)
		git(t, src, "add", "-A")
		for _, a := range strings.Split(args, ";") {
			if a != "" {
				git(t, src, strings.Fields(a)...)
			}
		}
		secrets[name] = ""
	}
	head := git(t, src, "rev-parse", "HEAD")
	note("stash", "stash")
	git(t, src, "checkout", "-q", "-b", "other")
	note("branch", "commit -q -m other")
	git(t, src, "tag", "later")
	note("notes", "commit -q -m more")
	git(t, src, "notes", "add", "-m", "a note", head)
	git(t, src, "checkout", "-q", "trunk")
	note("amended", "commit -q -m doomed")
	git(t, src, "reset", "-q", "--hard", head)
	git(t, src, "remote", "add", "origin", "https://user:password@example.org/x")
	git(t, src, "config", "http.extraHeader", "Authorization: secret")
	git(t, src, "config", "core.hooksPath", "/nonexistent/hooks")
	write(t, src+"/.git/hooks/pre-commit", "#!/bin/sh\nexit 1\n", 0o755)

	s := newStore(t)
	dir := exported(t, s, mustImport(t, s, Request{Repo: src}).ID)
	cleanGit(t, dir)
	reach := map[string]bool{}
	for _, id := range strings.Fields(git(t, src, "rev-list", "--objects", "--no-object-names", "--max-count=1", head)) {
		reach[id] = true
	}
	for _, id := range strings.Fields(git(t, dir, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")) {
		if !reach[id] {
			t.Errorf("%s is in the workspace", id)
		}
		delete(reach, id)
	}
	if len(reach) > 0 {
		t.Errorf("missing: %v", reach)
	}
	if out := git(t, dir, "for-each-ref", "--format=%(refname)"); out != "refs/heads/main" {
		t.Errorf("refs: %s", out)
	}
	cfg := git(t, dir, "config", "--local", "--list")
	for _, bad := range []string{"remote", "password", "hooks", "extraheader", "secret"} {
		if strings.Contains(strings.ToLower(cfg), bad) {
			t.Errorf("the configuration has %q:\n%s", bad, cfg)
		}
	}
	for _, gone := range []string{"hooks", "logs", "packed-refs", "refs/notes", "refs/stash", "refs/remotes", "ORIG_HEAD", "FETCH_HEAD", "worktrees", "modules"} {
		if _, err := os.Lstat(dir + "/.git/" + gone); err == nil {
			t.Errorf(".git/%s is there", gone)
		}
	}
	if out, err := exec.Command("grep", "-r", "-l", "-a", "-e", "leak of", "-e", src, dir).Output(); err == nil {
		t.Errorf("found in\n%s", out)
	}
}

// S12: an excluded path or its blob is nowhere, at any depth, also under the name that it had before.
func TestS12_ExcludedPathsAreNowhere(t *testing.T) {
	src := sample(t)
	write(t, src+"/tests/deep/x.txt", "hidden test\n", 0o644)
	write(t, src+"/tests/deep/same.txt", "hello again\n", 0o644) // README's bytes: visible anyway
	git(t, src, "add", "-A")
	git(t, src, "commit", "-q", "-m", "fourth")
	secret := git(t, src, "rev-parse", "HEAD:tests/secret.txt")
	hidden := git(t, src, "rev-parse", "HEAD:tests/deep/x.txt")
	sources := strings.Fields(git(t, src, "rev-list", "HEAD"))
	for _, req := range []Request{{Depth: 1}, {Depth: 2}, {FullHistory: true}} {
		req.Repo, req.Exclude = src, []string{"/tests"}
		s := newStore(t)
		res := mustImport(t, s, req)
		dir := exported(t, s, res.ID)
		cleanGit(t, dir)
		for _, id := range []string{secret, hidden} {
			if out, err := tryGit(dir, "cat-file", "-t", id); err == nil {
				t.Errorf("%+v: blob %s is there: %s", req, id, out)
			}
		}
		for _, path := range []string{"tests", "old/secret.txt", "secret.txt"} {
			if out := git(t, dir, "log", "--all", "--format=%H", "--", path); out != "" {
				t.Errorf("%+v: %s is in %s", req, path, out)
			}
		}
		if res.SourceCommit == res.WorkspaceCommit || git(t, dir, "rev-parse", "HEAD") != res.WorkspaceCommit {
			t.Errorf("%+v: commits %s and %s", req, res.SourceCommit, res.WorkspaceCommit)
		}
		if got := git(t, dir, "rev-parse", "HEAD^{tree}"); got != res.TreeID {
			t.Errorf("tree %s, want %s", got, res.TreeID)
		}
		for _, id := range sources {
			if err := exec.Command("grep", "-r", "-q", "-a", id, dir).Run(); err == nil {
				t.Errorf("%+v: the source commit %s is named", req, id)
			}
		}
		prov, err := s.Provenance(res.ID)
		if err != nil || len(prov) != 1 || prov[0].Detail["source_commit"] != res.SourceCommit {
			t.Errorf("provenance %+v, %v", prov, err)
		}
		if b, err := os.ReadFile(dir + "/README"); err != nil || string(b) != "hello again\n" {
			t.Errorf("README %q %v", b, err)
		}
	}
}

func TestS12_PatternsThatMatchNothingAreTold(t *testing.T) {
	src := sample(t)
	res := mustImport(t, newStore(t), Request{Repo: src, Exclude: []string{"test", "*.sh"}})
	if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], `"test"`) {
		t.Errorf("warnings: %q", res.Warnings)
	}
}

func TestS12_CopiesOfExcludedFilesAreTold(t *testing.T) {
	src := sample(t)
	write(t, src+"/docs/answers.txt", "the answer is 42\n", 0o644)
	git(t, src, "add", "-A")
	git(t, src, "commit", "-q", "-m", "copy")
	res := mustImport(t, newStore(t), Request{Repo: src, Exclude: []string{"/tests", "empty"}})
	if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], `"docs/answers.txt"`) {
		t.Errorf("warnings: %q", res.Warnings)
	}
}

func TestSubpath(t *testing.T) {
	src := sample(t)
	s := newStore(t)
	res := mustImport(t, s, Request{Repo: src, Subpath: "./src/", FullHistory: true})
	dir := exported(t, s, res.ID)
	cleanGit(t, dir)
	if want := git(t, src, "rev-parse", "HEAD:src"); res.TreeID != want {
		t.Errorf("tree %s, want %s", res.TreeID, want)
	}
	if out := git(t, dir, "ls-files"); out != "a.txt\na/b/c/deep.txt" {
		t.Errorf("files:\n%s", out)
	}
	if out := git(t, dir, "log", "--all", "--format=%H", "--", "README"); out != "" {
		t.Errorf("README is in %s", out)
	}
}
