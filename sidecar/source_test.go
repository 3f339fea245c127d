package sidecar

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"tine/snapshot/gitimport"
)

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func TestS13_PlacesOfARepository(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(top, name) }
	git(t, top, "init", "-q", "base")
	git(t, at("base"), "commit", "-q", "--allow-empty", "-m", "one")
	git(t, top, "clone", "-q", "--shared", "base", "main")
	git(t, at("main"), "worktree", "add", "-q", "-b", "side", at("linked[1]"))
	git(t, top, "clone", "-q", "--bare", "--shared", "main", "bare.git")
	if err := os.Mkdir(at("main/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from string
		want []string
	}{
		{"base", []string{"base"}},
		{"main", []string{"main", "linked[1]", "base"}},
		{"main/sub", []string{"main", "linked[1]", "base"}},
		{"linked[1]", []string{"linked[1]", "main", "base"}},
		{"bare.git", []string{"bare.git", "main", "base"}},
	} {
		got, err := sourcePlaces(at(c.from))
		if err != nil {
			t.Errorf("%s: %v", c.from, err)
			continue
		}
		var want []string
		for _, w := range c.want {
			want = append(want, at(w))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", c.from, got, want)
		}
	}
	var none *gitimport.NotRepositoryError
	if _, err := sourcePlaces(top); !errors.As(err, &none) {
		t.Errorf("outside: %v", err)
	}
}

func TestS13_SourceThatCoversTheHostIsRefused(t *testing.T) {
	for _, c := range []struct {
		hidden string
		ok     bool
	}{{"/", false}, {"/usr", false}, {"/usr/src/linux", true}, {"/usr2", true}, {"/srv", true}} {
		err := checkCover([]string{"/var/lib/tine", c.hidden}, "")
		var refusal *Refusal
		if got := errors.As(err, &refusal); got == c.ok || got && refusal.Rule != "S13" {
			t.Errorf("%s: %v", c.hidden, err)
		}
	}
	home := t.TempDir()
	for _, hidden := range []string{home, filepath.Dir(home)} {
		if err := checkCover([]string{hidden}, home); err == nil {
			t.Errorf("%s covers the home and is taken", hidden)
		}
	}
}
