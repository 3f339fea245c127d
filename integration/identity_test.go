package integration

import (
	"path/filepath"
	"testing"

	"tine/integration/testrepo"
)

// TestL3_TwoStoresOneID: importing one commit gives one checkpoint id, whatever the store, the copy of the
// repository, its packing, the user's time zone, umask or the way the commit is named.
func TestL3_TwoStoresOneID(t *testing.T) {
	l := newLab(t)
	repo := l.smallRepo("repo")
	l.shell(l.dir, `
		git clone -q --mirror repo bare.git; git -C bare.git gc -q --prune=now; git -C bare.git pack-refs --all
		git clone -q --shared repo alternates
		git -C repo worktree add -q --detach ../linked main
		git clone -q repo relative; git -C relative config extensions.worktreeConfig true`)
	want := l.importGit(repo)
	if tree := l.revTree(repo, "HEAD"); want.Tree != tree {
		t.Errorf("tree %s, git says %s", want.Tree, tree)
	}
	for n, args := range map[string][]string{
		"again, same store": {repo}, "by branch": {repo, "main"}, "full id": {repo, *want.Commit},
		"bare and packed": {l.path("bare.git")}, "alternates": {l.path("alternates")}, "linked worktree": {l.path("linked")},
		"worktreeConfig": {l.path("relative")}, "a subdirectory's parent": {filepath.Join(repo, "src", "..")},
		"eager": {repo, "--eager"},
	} {
		t.Run(n, func(t *testing.T) {
			other := *l
			other.t = t
			if n != "again, same store" {
				other.store = l.path("store-" + filepath.Base(t.Name()))
			}
			got := other.importGit(args...)
			if got.Checkpoint != want.Checkpoint || got.Tree != want.Tree {
				t.Errorf("checkpoint %s tree %s, want %s and %s", got.Checkpoint, got.Tree, want.Checkpoint, want.Tree)
			}
			other.ok("fsck", "--all")
		})
	}
	cmd := l.tineCmd("--json", "import", "git", repo)
	cmd.Args = append([]string{"sh", "-c", `umask 077; TZ=Asia/Tokyo LC_ALL=C exec "$0" "$@"`, *binary}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	cmd.Env = append(cmd.Env, "TINE_STORE="+l.path("store-umask"))
	if r := command(t, cmd); r.status != 0 || !contains(r.stdout, want.Checkpoint) {
		t.Errorf("another umask and time zone: want %s, got %v", want.Checkpoint, r)
	}
}

// TestL3_TreeIsGitTree: the tree id is git's, for a repository with everything a commit can hold.
func TestL3_TreeIsGitTree(t *testing.T) {
	l := newLab(t)
	repo := l.mkdir("repo")
	sub := l.smallRepo("sub")
	l.shell(repo, `
		git init -q -b main; mkdir -p 'sp ace' a-b a.b a; echo 1 >'sp ace/é'; echo 2 >a-b/x; echo 3 >a.b/x; echo 4 >a/x; echo 5 >a.c
		printf 'bytes' >"$(printf 'latin-\351')"; : >empty; ln -s a/x link; printf 'x\r\ny' >crlf; head -c 300000 /dev/zero >zeros
		echo '*.txt text eol=crlf' >.gitattributes; echo text >t.txt; chmod 755 a/x
		head -c 9000000 /dev/zero | tr '\0' 'z' >over8MiB
		git -c protocol.file.allow=always submodule add -q '`+sub+`' module
		git add -A; git commit -q -m all`)
	i := l.importGit(repo)
	if want := l.revTree(repo, "HEAD"); i.Tree != want {
		t.Errorf("tree %s, git says %s", i.Tree, want)
	}
	m := l.path("m")
	s := l.mount(l.fork(i.Checkpoint), m)
	l.shell(m, `
		test -z "$(git status --porcelain --ignore-submodules=all)"
		test -d module; test -z "$(ls -A module)"; test "$(cat t.txt)" = text; test "$(readlink link)" = a/x; test -x a/x
		test $(stat -c %s over8MiB) = 9000000; test "$(tr -d z <over8MiB | wc -c)" = 0; test $(cat zeros | wc -c) = 300000`)
	s.stop()
}

// TestL3_TreeIgnoresHowItWasMade: the same text and modes give the same tree id whoever wrote them, when and how.
func TestL3_TreeIgnoresHowItWasMade(t *testing.T) {
	l := newLab(t)
	i := l.importGit(l.smallRepo("repo"))
	m := l.path("m")
	tree := func(script string) string {
		fork := l.fork(i.Checkpoint)
		s := l.mount(fork, m)
		defer s.stop()
		l.shell(m, script)
		c := l.seal(fork).Checkpoint
		var shown struct{ Tree string }
		l.json(&shown, "checkpoint", "show", c)
		if shown.Tree == "" {
			t.Fatal("checkpoint show gives no tree")
		}
		return shown.Tree
	}
	a := tree(`printf 'hello\nworld\n' >f; mkdir d; echo x >d/y; rm README.md`)
	b := tree(`rm README.md; mkdir t; echo x >t/y; mv t d; printf 'hello\n' >g; mv g f; echo world >>f; mkdir leftover
		chown 77:88 f; touch -d 2001-01-01 d/y; setfattr -n user.k -v v f; mkfifo p`)
	if a != b {
		t.Errorf("two ways to one content: trees %s and %s", a, b)
	}
	want := l.shell(l.path("repo"), `printf 'hello\nworld\n' >f; mkdir d; echo x >d/y; rm README.md; git add -A; git write-tree`)
	if a != want {
		t.Errorf("tree %s, git says %s", a, want)
	}
}

// TestL2_UnchangedForkSealsToItsBase, also after it was read, served twice and by a run.
func TestL2_UnchangedForkSealsToItsBase(t *testing.T) {
	l := newLab(t)
	i := l.importGit(l.smallRepo("repo"))
	fork := l.fork(i.Checkpoint)
	check := func(when, f string) {
		t.Helper()
		if got := l.seal(f); got.Checkpoint != i.Checkpoint || got.Changed {
			t.Errorf("%s: sealed as %+v, the base is %s", when, got, i.Checkpoint)
		}
	}
	check("never mounted", fork)
	m := l.path("m")
	s := l.mount(fork, m)
	l.shell(m, "find . -type f -exec cat {} + >/dev/null; ls -laR >/dev/null; git log >/dev/null; git diff")
	check("while mounted and read", fork)
	s.stop()
	check("after unmounting", fork)
	l.ok("run", "--checkpoint", i.Checkpoint, "--keep", "--name", "kept", "--seal", "always", "--", "true")
	if ls := l.ok("--json", "checkpoint", "ls"); count(ls, `"checkpoint"`)+count(ls, `"id"`) != 1 {
		t.Errorf("one checkpoint expected after sealing the unchanged: %s", ls)
	}
}

// TestL3_GoSourceTree is the same claim for real content of over 9,000 files.
func TestL3_GoSourceTree(t *testing.T) {
	l := newLab(t)
	repo, err := goSource()
	l.must(err)
	i := l.importGit(repo)
	if i.Files < 9000 {
		t.Errorf("%d files, want over 9,000", i.Files)
	}
	if want := l.revTree(repo, "HEAD"); i.Tree != want {
		t.Errorf("tree %s, git says %s", i.Tree, want)
	}
	commit, err := testrepo.Git(repo, "rev-parse", "HEAD")
	l.must(err)
	if i.Commit == nil || *i.Commit != commit {
		t.Errorf("commit %v, want %s", i.Commit, commit)
	}
	other := *l
	other.store = l.path("store2")
	if j := other.importGit(repo); j.Checkpoint != i.Checkpoint {
		t.Errorf("two stores: %s and %s", i.Checkpoint, j.Checkpoint)
	}
}
