package integration

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tine/integration/testrepo"
)

// TestGitWorksInAFork: the system's git in a fresh fork of a repository of over 9,000 files.
func TestGitWorksInAFork(t *testing.T) {
	l := newLab(t)
	repo, err := goSource()
	l.must(err)
	fork := l.fork(l.importGit(repo).Checkpoint)
	m := l.path("m")
	s := l.mount(fork, m)
	l.shell(m, `
		test -z "$(git status --porcelain)"
		test "$(git log --format=%s)" = "Notes and a link"
		git diff --quiet; git diff --cached --quiet
		test "$(git ls-files | wc -l)" = "$(git ls-tree -r --name-only HEAD | wc -l)"
		echo more >>NOTES.md; rm gomain; echo u >untracked; git mv go.mod go.mod2
		test "$(git status --porcelain)" = " M NOTES.md
R  go.mod -> go.mod2
 D gomain
?? untracked"
		git stash -q; test "$(git status --porcelain)" = "?? untracked"; git stash pop -q
		git checkout -q -b work; git add -A; git commit -q -m change
		test "$(git log --format=%s)" = "change
Notes and a link"
		test -z "$(git status --porcelain)"; git show --stat HEAD >/dev/null; git diff HEAD~1 --stat | grep -q NOTES.md
		git checkout -q main; test -L gomain; test ! -e untracked; git merge -q work; git reset -q --hard HEAD~1
		git fsck --full --strict; git gc -q; git fsck --full --strict; git repack -adq; git fsck --full --strict
		git checkout -q work; test -z "$(git status --porcelain)"; git cat-file -e work:untracked
		echo 1 >"f"; git add f; git commit -q --amend -m amended; git rev-parse --verify -q HEAD >/dev/null`)
	want := l.shell(m, "git rev-parse HEAD^{tree}")
	if sealed := l.seal(fork); !sealed.Changed || l.treeOf(sealed.Checkpoint) != want {
		t.Errorf("sealed as %+v with tree %s, HEAD's is %s", sealed, l.treeOf(sealed.Checkpoint), want)
	}
	s.stop()
}

func (l *lab) treeOf(checkpoint string) string {
	l.t.Helper()
	var shown struct{ Tree string }
	l.json(&shown, "checkpoint", "show", checkpoint)
	return shown.Tree
}

// TestFirstGitStatusHashesNothing: it opens no tracked file but git's own configuration files, in a fresh fork, after
// a remount, and in a fork of the same checkpoint.
func TestFirstGitStatusHashesNothing(t *testing.T) {
	requireTools(t, "strace")
	l := newLab(t)
	repo, err := goSource()
	l.must(err)
	c := l.importGit(repo).Checkpoint
	fork := l.fork(c)
	m := l.path("m")
	check := func(when, fork string, user ...string) {
		s := l.mount(fork, m)
		defer s.stop()
		cmd := exec.Command("strace", append([]string{"-f", "-qq", "-e", "trace=open,openat", "-o", l.path("trace"),
			"git", "status", "--porcelain"}, user...)...)
		cmd.Dir, cmd.Env = m, testrepo.Env()
		if r := command(t, cmd); r.status != 0 || r.stdout != "" {
			t.Fatalf("%s: %v", when, r)
		}
		trace, err := os.ReadFile(l.path("trace"))
		l.must(err)
		tracked := map[string]bool{}
		for f := range strings.Lines(l.shell(m, "git ls-files")) {
			tracked[strings.TrimSuffix(f, "\n")] = true
		}
		opened := regexp.MustCompile(`open(?:at)?\((?:[^,]*, )?"([^"]*)", ([A-Z_|]*)`)
		var bad []string
		for _, w := range opened.FindAllStringSubmatch(string(trace), -1) {
			name := strings.TrimPrefix(strings.TrimPrefix(w[1], m+"/"), "./")
			base := name[strings.LastIndexByte(name, '/')+1:]
			if tracked[name] && base != ".gitignore" && base != ".gitattributes" && base != ".gitmodules" && base != ".mailmap" {
				bad = append(bad, name)
			}
		}
		if bad != nil {
			t.Errorf("%s: git status read %d tracked files: %v", when, len(bad), head(bad))
		}
	}
	check("fresh fork", fork)
	check("mounted again", fork)
	check("another fork", l.fork(c))
}

// TestS11_OnlySelectedHistoryIsReachable: objects, refs, remotes, hooks, configuration of the source are not there.
func TestS11_OnlySelectedHistoryIsReachable(t *testing.T) {
	l := newLab(t)
	repo := l.smallRepo("repo")
	l.shell(repo, `
		echo dropped >dropped; git add dropped; git stash -q; git tag v1 other; git config user.password hunter2
		git remote add origin https://user:token@example.invalid/x.git; git config credential.helper 'store --file=/x'
		printf '#!/bin/sh\n' >.git/hooks/post-checkout; chmod 755 .git/hooks/post-checkout
		git notes add -m 'a note' HEAD; git replace HEAD HEAD~1 2>/dev/null || true; git replace -d HEAD >/dev/null 2>&1 || true
		echo loose | git hash-object -w --stdin >/dev/null`)
	for name, c := range map[string]struct {
		flags   []string
		commits string
		objects string // rev-list's arguments in the source for what may be reachable
	}{
		"depth 1":      {nil, "1", "--no-walk main"},
		"depth 2":      {[]string{"--depth", "2"}, "2", "main"},
		"full history": {[]string{"--full-history"}, "2", "main"},
	} {
		t.Run(name, func(t *testing.T) {
			other := *l
			other.t = t
			fork := other.fork(other.importGit(append([]string{repo}, c.flags...)...).Checkpoint)
			m := l.path("m")
			s := other.mount(fork, m)
			defer s.stop()
			if n := other.shell(m, "git rev-list --all --count"); n != c.commits {
				t.Errorf("%s commits reachable, want %s", n, c.commits)
			}
			got := strings.Fields(other.shell(m, "git cat-file --batch-all-objects --batch-check='%(objectname)'"))
			want := strings.Fields(other.shell(repo, "git rev-list --objects --no-object-names "+c.objects))
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(slices.Compact(got), slices.Compact(want)) {
				t.Errorf("the fork's object store has %d objects, the selected history %d", len(got), len(want))
			}
			for _, where := range []string{"hunter2", "example.invalid", "credential", "secret of the other"} {
				if out := other.shell(m, "grep -ral '"+where+"' .git || true"); out != "" {
					t.Errorf("%q is in %s", where, out)
				}
			}
			other.shell(m, `
				test -z "$(git remote)"; test -z "$(git stash list)"; test -z "$(git tag)"; test "$(git branch --format='%(refname)')" = refs/heads/main
				test ! -e .git/hooks/post-checkout; test ! -e .git/objects/info/alternates; test ! -e .git/FETCH_HEAD; test ! -e .git/ORIG_HEAD
				test ! -e .git/commondir; test -d .git; git fsck --full --strict --lost-found >lf 2>&1; ! grep -q dangling lf || exit 1; ! grep . lf || exit 1; rm lf
				test -z "$(git log --all -S 'secret of the other' --format=%H)"; test -z "$(git for-each-ref | grep -v refs/heads/main || true)"`)
		})
	}
}
