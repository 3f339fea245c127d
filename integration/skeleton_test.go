package integration

import (
	"strings"
	"syscall"
	"testing"

	"tine/integration/manifest"
	"tine/integration/testrepo"
)

// smallRepo makes a repository of a few files with two commits on main and one on another branch.
func (l *lab) smallRepo(name string) string {
	l.t.Helper()
	dir := l.mkdir(name)
	l.shell(dir, `
		git init -q -b main
		mkdir -p src/deep/er docs
		echo 'first' >README.md; echo 'int main(void) { return 0; }' >src/main.c
		printf '#!/bin/sh\necho hi\n' >run.sh; chmod 755 run.sh
		ln -s src/main.c link; ln -s nowhere dangling
		seq 1 3000 >src/deep/er/numbers; : >docs/empty; echo '*.o' >.gitignore
		git add -A; git commit -q -m first
		git checkout -q -b other; echo 'the secret of the other branch' >other.txt; git add -A; git commit -q -m 'on the other branch'
		git checkout -q main; echo 'second' >>README.md; git commit -q -a -m second`)
	return dir
}

// revTree is a revision's tree id.
func (l *lab) revTree(repo, rev string) string {
	l.t.Helper()
	id, err := testrepo.Git(repo, "rev-parse", rev+"^{tree}")
	l.must(err)
	return id
}

// TestSkeleton is the main job end to end: import, fork, mount, write, kill -9, mount again, seal, export.
func TestSkeleton_O3_L1_WriteKillMountSealExport(t *testing.T) {
	l := newLab(t)
	repo := l.smallRepo("repo")
	i := l.importGit(repo)
	if want := l.revTree(repo, "HEAD"); i.Tree != want {
		t.Errorf("import says tree %s, git says %s", i.Tree, want)
	}
	if i.Files != 8 {
		t.Errorf("import says %d files, the commit has 8", i.Files)
	}
	fork := l.fork(i.Checkpoint)
	m := l.path("m")
	s := l.mount(fork, m)
	l.shell(m, `
		test "$(cat README.md)" = "first
second"
		echo new >new.txt; mkdir -p a/b; echo x >a/b/c; mv src source; rm docs/empty; ln new.txt hard
		chmod 700 run.sh; ln -s a l; touch -d '2001-02-03 04:05:06.789' README.md
		setfattr -n user.note -v v new.txt; truncate -s 100k sparse; echo end >>sparse; chown 12:34 a/b/c`)
	before := l.manifest(m)
	s.kill9()
	s.detach()
	s = l.mount(fork, m)
	after := l.manifest(m)
	l.same("before the kill", before, "after it", after, manifest.Rules{Inodes: true})
	sealed := l.seal(fork)
	if !sealed.Changed || sealed.Checkpoint == i.Checkpoint {
		t.Errorf("a changed fork was sealed as %+v", sealed)
	}
	s.stop()
	l.ok("checkpoint", "export", sealed.Checkpoint, l.path("out"))
	l.same("workspace", after, "export", l.manifest(l.path("out")), manifest.Rules{})
}

// TestUnmountOnEveryExit: SIGINT, SIGTERM and umount end the server, and each leaves nothing.
func TestUnmountOnEveryExit(t *testing.T) {
	l := newLab(t)
	i := l.importGit(l.smallRepo("repo"))
	m := l.path("m")
	for _, how := range []string{"SIGINT", "SIGTERM", "umount"} {
		s := l.mount(l.fork(i.Checkpoint), m)
		l.shell(m, "echo x >f")
		switch how {
		case "SIGINT":
			s.end(syscall.SIGINT)
		case "SIGTERM":
			s.stop()
		default:
			l.shell(l.dir, "umount m")
			<-s.exited
			if s.state != nil {
				t.Errorf("after umount the server ended with %v: %s", s.state, s.errs.String())
			}
		}
		if at := mountsAt(m); at != nil {
			t.Errorf("%s: still mounted", how)
		}
	}
	out := strings.Fields(l.shell(m, "ls -A"))
	if len(out) != 0 {
		t.Errorf("beneath the mount: %v", out)
	}
}
