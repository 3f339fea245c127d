package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tine/integration/testrepo"
)

// TestL1_FullDisk: with no space writes fail with ENOSPC and nothing that was acknowledged is lost, by a kill either; a
// seal fails, publishes nothing and leaves the workspace usable; once there is space everything goes on.
func TestL1_FullDisk(t *testing.T) {
	requireTools(t, "mkfs.ext4")
	l := newLab(t)
	repo := l.smallRepo("repo")
	disk := l.loopExt4("disk", "48M")
	l.store = filepath.Join(disk, "store")
	defer sweep(disk)
	l.shell(disk, "head -c 8000000 /dev/zero >ballast")
	i := l.importGit(repo)
	fork := l.fork(i.Checkpoint)
	s := l.mount(fork, l.path("m"))
	l.shell(s.dir, "echo kept >kept; head -c 1000000 /dev/urandom >random; sha256sum random >sum")
	out := l.shell(s.dir, `i=0; while [ $i -lt 60 ]; do head -c 1000000 /dev/urandom >fill.$i 2>err || break; i=$((i+1)); done; echo $i; cat err >&2 || true`)
	if out == "60" {
		t.Fatal("60 MB fit on a disk of 48 MB")
	}
	cmd := exec.Command("sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x >more")
	cmd.Dir, cmd.Env = s.dir, testrepo.Env()
	r := command(t, cmd)
	if r.status == 0 || !strings.Contains(r.stderr, "No space left") {
		t.Errorf("a write to a full disk: %v", r)
	}
	l.shell(s.dir, "sha256sum -c --quiet sum; test $(cat kept) = kept; ls >/dev/null; git log >/dev/null")
	ls := l.ok("--json", "checkpoint", "ls")
	if r := l.run("seal", fork); r.status == 0 {
		t.Error("a seal on a full disk succeeded")
	} else if !strings.Contains(strings.ToLower(r.stderr), "no space") {
		t.Errorf("the message does not say why: %v", r)
	}
	if now := l.ok("--json", "checkpoint", "ls"); now != ls {
		t.Errorf("a failed seal published something: %s, was %s", now, ls)
	}
	if left := l.storeLeftovers(); left != nil {
		t.Errorf("after a failed seal: %v", left)
	}
	l.shell(s.dir, "sha256sum -c --quiet sum; rm -f kept")
	s.kill9()
	s.detach()
	s = l.mount(fork, l.path("m"))
	l.shell(s.dir, "sha256sum -c --quiet sum; test ! -e kept; for f in fill.?; do test $(stat -c %s $f) = 1000000; done; rm -f fill.* more err")
	l.shell(disk, "rm ballast")
	l.shell(s.dir, "echo works again >again; head -c 1000000 /dev/urandom >again2")
	if c := l.seal(fork); l.ok("checkpoint", "cat", c.Checkpoint, "again") != "works again\n" {
		t.Error("the sealed file is not what was written")
	}
	s.stop()

	// An import that doesn't fit leaves nothing.
	big := l.mkdir("big")
	l.shell(big, "for i in $(seq 30); do head -c 2000000 /dev/urandom >f$i; done")
	ls = l.ok("--json", "checkpoint", "ls")
	files := l.shell(disk, "find store -type f ! -name '*.log' | sort")
	l.fails(1, []string{"no space"}, "import", "dir", big)
	if now := l.ok("--json", "checkpoint", "ls"); now != ls {
		t.Errorf("a failed import published something: %s", now)
	}
	if now := l.shell(disk, "find store -type f ! -name '*.log' ! -path '*/segments/*' ! -path '*/objects/*' | sort"); len(now) > len(files) {
		t.Errorf("a failed import left files:\n%s", now)
	}
	l.ok("fsck", "--all")
}

// TestNoFuseDevice: without /dev/fuse mount and run say so, and leave nothing.
func TestNoFuseDevice(t *testing.T) {
	l := newLab(t)
	repo := l.smallRepo("repo")
	fork := l.fork(l.importGit(repo).Checkpoint)
	l.mkdir("m")
	hidden := func(args ...string) result {
		cmd := l.tineCmd(args...)
		cmd.Args = append([]string{"unshare", "-m", "--propagation", "private", "sh", "-c",
			`mkdir -p "$0"; mount -t tmpfs none /dev; exec "$@"`, l.path("nothing"), *binary}, args...)
		cmd.Path, _ = exec.LookPath("unshare")
		return command(t, cmd)
	}
	for _, c := range []struct {
		status int
		args   []string
	}{{1, []string{"mount", fork, l.path("m")}}, {125, []string{"run", "--repo", repo, "--", "true"}}} {
		r := hidden(c.args...)
		if r.status != c.status || !strings.Contains(r.stderr, "/dev/fuse") {
			t.Errorf("want status %d and /dev/fuse in the message of %v", c.status, r)
		}
	}
	if r := hidden("doctor"); !strings.Contains(r.stdout+r.stderr, "/dev/fuse") {
		t.Errorf("doctor says nothing of /dev/fuse: %v", r)
	}
	if fs := l.ok("--json", "fork", "ls"); strings.Count(fs, `"checkpoint"`) != 1 {
		t.Errorf("forks left behind: %s", fs)
	}
}

// TestMountPoints: missing, not a directory, busy, inside another fork: refused, with the reason, nothing left.
func TestMountPoints(t *testing.T) {
	l := newLab(t)
	c := l.importGit(l.smallRepo("repo")).Checkpoint
	fork := l.fork(c)
	l.writeFile("file", "x")
	l.fails(1, []string{"missing"}, "mount", fork, l.path("missing"))
	l.fails(1, []string{"not a directory"}, "mount", fork, l.path("file"))
	if _, err := os.Stat(l.path("missing")); err == nil {
		t.Error("the missing mount point was made")
	}
	first := l.mount(l.fork(c), l.path("m"))
	r := l.run("mount", fork, first.dir)
	if r.status != 1 && r.status != 3 || !strings.Contains(r.stderr, "mount") {
		t.Errorf("over another live mount: %v", r)
	}
	if n := len(mountsAt(first.dir)); n != 1 {
		t.Errorf("%d mounts at the busy mount point", n)
	}
	l.shell(first.dir, "test -e README.md")
	// A busy workspace: the server ends all the same, and the directory is free again.
	cmd := exec.Command("sleep", "60")
	cmd.Dir = first.dir
	l.must(cmd.Start())
	first.stop()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	// Non-empty mount points hide what is beneath; it is untouched afterwards.
	l.mkdir("full")
	l.writeFile("full/beneath", "x")
	if r := l.run("mount", "no-such-fork", l.path("full")); r.status != 1 {
		t.Errorf("unknown fork: %v", r)
	}
	l.shell(l.path("full"), "test $(cat beneath) = x; test $(ls | wc -l) = 1")
}

// TestTwoServersForOneFork: the second is refused and says who serves; the first goes on.
func TestTwoServersForOneFork(t *testing.T) {
	l := newLab(t)
	fork := l.fork(l.importGit(l.smallRepo("repo")).Checkpoint)
	s := l.mount(fork, l.path("m"))
	l.shell(s.dir, "echo 1 >f")
	l.mkdir("m2")
	r := l.run("mount", fork, l.path("m2"))
	if r.status != 1 && r.status != 3 || !strings.Contains(r.stderr, itoa(s.cmd.Process.Pid)) {
		t.Errorf("want a refusal that names process %d: %v", s.cmd.Process.Pid, r)
	}
	if mountsAt(l.path("m2")) != nil {
		t.Error("a second mount exists")
	}
	l.shell(s.dir, "echo 2 >>f; test $(wc -l <f) = 2")
	s.stop()
	s = l.mount(fork, l.path("m2"))
	l.shell(s.dir, "test $(wc -l <f) = 2")
	s.stop()
}

// TestStoreOfANewerVersion is refused by every command, naming both versions, and not changed.
func TestStoreOfANewerVersion(t *testing.T) {
	l := newLab(t)
	repo := l.smallRepo("repo")
	c := l.importGit(repo).Checkpoint
	fork := l.fork(c)
	format, err := os.ReadFile(filepath.Join(l.store, "format"))
	l.must(err)
	l.shell(l.dir, "chmod u+w store/format; sed -i '1s/1/999/' store/format")
	before := l.shell(l.dir, "find store -type f -exec sha256sum {} + | sort")
	l.mkdir("m")
	for _, args := range [][]string{{"import", "git", repo}, {"checkpoint", "ls"}, {"checkpoint", "show", c}, {"fork", "create", c}, {"fork", "ls"},
		{"seal", fork}, {"mount", fork, l.path("m")}, {"run", "--repo", repo, "--", "true"}, {"fsck", "--all"}, {"runs", "ls"}} {
		r := l.run(args...)
		want := 1
		if args[0] == "run" {
			want = 125
		}
		if r.status != want && r.status != 3 || !strings.Contains(r.stderr, "999") || !strings.Contains(r.stderr, "1") {
			t.Errorf("want status %d and both versions in the message of %v", want, r)
		}
	}
	if after := l.shell(l.dir, "find store -type f -exec sha256sum {} + | sort"); after != before {
		t.Error("the store was changed")
	}
	l.must(os.WriteFile(filepath.Join(l.store, "format"), format, 0o644))
	l.ok("checkpoint", "show", c)
}

// TestL4_NamesKeepAndFree: a name keeps a seal, rm takes away the name only, a taken name is refused.
func TestL4_NamesKeepAndFree(t *testing.T) {
	l := newLab(t)
	c := l.importGit(l.smallRepo("repo"), "--name", "base").Checkpoint
	fork := l.fork("base")
	s := l.mount(fork, l.path("m"))
	l.shell(s.dir, "echo x >f")
	s.stop()
	sealed := l.seal(fork, "--name", "done")
	if l.ok("checkpoint", "cat", "done", "f") != "x\n" {
		t.Error("the name does not lead to the seal")
	}
	if r := l.run("tag", c, "done"); r.status != 1 && r.status != 3 {
		t.Errorf("a taken name: %v", r)
	}
	l.ok("tag", sealed.Checkpoint, "second")
	l.ok("checkpoint", "rm", "done")
	if l.ok("checkpoint", "cat", "second", "f") != "x\n" || l.ok("checkpoint", "cat", sealed.Checkpoint[:16], "f") != "x\n" {
		t.Error("removing a name took the data")
	}
	l.fails(1, []string{"done"}, "checkpoint", "show", "done")
}
