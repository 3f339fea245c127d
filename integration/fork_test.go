package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tine/integration/manifest"
)

// everyChange changes a workspace of smallRepo by every kind of call.
const everyChange = `
	echo x >>README.md; printf y | dd of=src/main.c bs=1 seek=1 conv=notrunc 2>/dev/null; mv docs papers; rm run.sh; ln README.md hard
	chmod 600 .gitignore; truncate -s 7 src/deep/er/numbers; setfattr -n user.k -v v src; touch -d 2001-01-01 link -h; mkdir new; echo n >new/n
	python3 -c "
import mmap,os
f=os.open('src/main.c',os.O_RDWR); m=mmap.mmap(f,5); m[0:5]=b'MMAPD'; m.flush()"`

// TestO1_ChangesStayInTheirFork: sibling, parent, child forked earlier and base see nothing.
func TestO1_ChangesStayInTheirFork(t *testing.T) {
	requireTools(t, "python3", "setfattr")
	l := newLab(t)
	i := l.importGit(l.smallRepo("repo"))
	mount := func(fork, name string) *server { return l.mount(fork, l.path(name)) }
	parent := l.fork(i.Checkpoint)
	p := mount(parent, "parent")
	sibling := mount(l.fork(i.Checkpoint), "sibling")
	base := l.manifest(sibling.dir)
	l.shell(p.dir, "echo made before the child >early; echo early >>README.md")
	child := mount(l.fork(parent), "child")
	atFork := l.manifest(p.dir)
	l.same("parent at the fork", atFork, "child", l.manifest(child.dir), manifest.Rules{Inodes: true})

	l.shell(p.dir, everyChange)
	parentNow := l.manifest(p.dir)
	l.same("child before", atFork, "child", l.manifest(child.dir), manifest.Rules{Inodes: true})
	l.same("sibling before", base, "sibling", l.manifest(sibling.dir), manifest.Rules{Inodes: true})

	l.shell(child.dir, everyChange+"\nrm -r src; echo child >early")
	l.same("parent", parentNow, "parent after the child's changes", l.manifest(p.dir), manifest.Rules{Inodes: true})
	fresh := mount(l.fork(i.Checkpoint), "fresh")
	l.same("base before", base, "a fresh fork", l.manifest(fresh.dir), manifest.Rules{Inodes: true})
	for _, s := range []*server{p, sibling, child, fresh} {
		s.stop()
	}
}

// TestO2_CheckpointsDoNotChange: exports before and after work in forks are equal, and so are the store's files.
func TestO2_CheckpointsDoNotChange(t *testing.T) {
	requireTools(t, "python3", "setfattr")
	l := newLab(t)
	i := l.importGit(l.smallRepo("repo"), "--eager")
	l.ok("checkpoint", "export", i.Checkpoint, l.path("before"))
	sums := `find store/images store/checkpoints store/objects -type f ! -name '*.jsonl' -exec sha256sum {} + 2>/dev/null | sort`
	stored := l.shell(l.dir, sums)
	fork := l.fork(i.Checkpoint)
	s := l.mount(fork, l.path("m"))
	l.shell(s.dir, everyChange)
	l.seal(fork)
	s.stop()
	l.ok("checkpoint", "export", i.Checkpoint, l.path("after"))
	l.same("before", l.manifest(l.path("before")), "after", l.manifest(l.path("after")), manifest.Rules{})
	now := map[string]bool{}
	for line := range strings.Lines(l.shell(l.dir, sums)) {
		now[strings.TrimSpace(line)] = true
	}
	for line := range strings.Lines(stored) {
		if !now[strings.TrimSpace(line)] {
			t.Errorf("changed or gone in the store: %s", line)
		}
	}
}

// TestO4_ForkOfALiveForkIsOneInstant: a writer makes pairs, first a then b; a fork taken meanwhile never has a b
// without its a, nor two pairs open.
func TestO4_ForkOfALiveForkIsOneInstant(t *testing.T) {
	l := newLab(t)
	parent := l.fork(l.importGit(l.smallRepo("repo")).Checkpoint)
	s := l.mount(parent, l.path("m"))
	writer := exec.Command("sh", "-c", `i=0; while :; do echo $i >a.$i; echo $i >b.$i; echo $i >last; i=$((i+1)); [ $((i%100)) != 0 ] || sleep .05; done`)
	writer.Dir = s.dir
	l.must(writer.Start())
	defer writer.Wait()
	defer writer.Process.Kill()
	for n := range 5 {
		child := l.mount(l.fork(parent), l.path(fmt.Sprint("child", n)))
		first, second := names(child.dir, "a."), names(child.dir, "b.")
		var bad []string
		for i := range second {
			if !first[i] {
				bad = append(bad, "b."+i+" without its a")
			}
		}
		if len(first) > len(second)+1 || len(second) == 0 && n > 0 {
			bad = append(bad, fmt.Sprintf("%d times a, %d times b", len(first), len(second)))
		}
		if bad != nil {
			t.Errorf("fork %d: %v", n, head(bad))
		}
		child.stop()
	}
	l.must(writer.Process.Kill())
	_ = writer.Wait()
	s.stop()
}

// names gives the suffixes of a directory's entries with a prefix.
func names(dir, prefix string) map[string]bool {
	list, _ := os.ReadDir(dir)
	out := map[string]bool{}
	for _, e := range list {
		if rest, ok := strings.CutPrefix(e.Name(), prefix); ok {
			out[rest] = true
		}
	}
	return out
}

// TestO1_ManyForksAtOnce (cases 24, 25, 69): writers in many forks of one base don't meet.
func TestO1_ManyForksAtOnce(t *testing.T) {
	l := newLab(t)
	i := l.importGit(l.smallRepo("repo"))
	n := 8
	if *long {
		n = 64
	}
	var wg sync.WaitGroup
	var servers []*server
	for k := range n {
		servers = append(servers, l.mount(l.fork(i.Checkpoint), l.path(fmt.Sprint("m", k))))
	}
	for k, s := range servers {
		wg.Go(func() {
			cmd := exec.Command("sh", "-c", fmt.Sprintf(`for i in $(seq 200); do echo %d.$i >f$i; echo %d >>README.md; done`, k, k))
			cmd.Dir = s.dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("fork %d: %v: %s", k, err, out)
			}
		})
	}
	wg.Wait()
	for k, s := range servers {
		l.shell(s.dir, fmt.Sprintf(`for i in $(seq 200); do test "$(cat f$i)" = %d.$i; done
			test "$(grep -cx %d README.md)" = 200; test "$(wc -l <README.md)" = 202`, k, k))
		s.stop()
	}
}

// TestO5_UnreadableContentIsEIO: a blob that can't be verified gives EIO, never other bytes, and nothing else breaks.
func TestO5_UnreadableContentIsEIO(t *testing.T) {
	l := newLab(t)
	repo := l.smallRepo("repo")
	l.shell(repo, "git gc -q; git repack -adfq --window=0")
	fork := l.fork(l.importGit(repo).Checkpoint)
	s := l.mount(fork, l.path("m"))
	l.shell(s.dir, "cat src/main.c >/dev/null")
	l.damageBlobs(filepath.Join(repo, ".git"))
	for _, f := range []string{"README.md", "src/deep/er/numbers"} {
		out, err := exec.Command("cat", filepath.Join(s.dir, f)).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "Input/output error") {
			t.Errorf("%s, whose blob is damaged: %v %q", f, err, clip(string(out)))
		}
	}
	l.shell(s.dir, "cat src/main.c; echo works >new; test -z \"$(cat docs/empty)\"; stat README.md >/dev/null")
	if r := l.run("checkpoint", "export", fork, l.path("out")); r.status == 0 {
		t.Error("an export with unreadable content succeeded")
	}
	s.stop()
	l.damaged = true
}

// TestO6_RemovingAFork leaves nothing of it and does not touch its relatives.
func TestO6_RemovingAFork(t *testing.T) {
	l := newLab(t)
	i := l.importGit(l.smallRepo("repo"))
	state := func() string { return l.shell(l.dir, "find store ! -name forks.log ! -path '*/run*' | sort") }
	// What the first fork makes for all that follow.
	first := l.fork(i.Checkpoint)
	s := l.mount(first, l.path("m"))
	l.shell(s.dir, "echo x >f")
	s.stop()
	l.ok("fork", "rm", first)
	keep := l.fork(i.Checkpoint)
	before := state()
	gone := l.fork(i.Checkpoint, "--name", "gone")
	s = l.mount(gone, l.path("m"))
	l.shell(s.dir, "echo x >f")
	k := l.mount(keep, l.path("k"))
	l.shell(k.dir, "echo kept >f")
	if r := l.run("fork", "rm", gone); r.status == 0 {
		t.Log("a mounted fork could be removed: its mount must be gone then")
		if mountsAt(s.dir) != nil {
			t.Error("removed, and still mounted")
		}
		<-s.exited
	} else {
		s.stop()
		l.ok("fork", "rm", gone)
	}
	l.shell(k.dir, "test $(cat f) = kept; echo more >>f")
	k.stop()
	l.ok("fork", "rm", keep)
	if after := state(); len(after) > len(before) {
		t.Errorf("the store had\n%s\nand has\n%s", before, after)
	}
	if ls := l.ok("--json", "fork", "ls"); strings.TrimSpace(ls) != "[]" {
		t.Errorf("fork ls: %s", ls)
	}
	l.fails(1, nil, "fork", "show", "gone")
}

// TestControlPlaneWorksWhileMounted (case 30): diff, show, inspect and seal of a fork that another process serves.
func TestControlPlaneWorksWhileMounted(t *testing.T) {
	l := newLab(t)
	fork := l.fork(l.importGit(l.smallRepo("repo")).Checkpoint, "--name", "busy")
	s := l.mount(fork, l.path("m"))
	l.shell(s.dir, "echo x >new; rm run.sh")
	for _, args := range [][]string{{"fork", "diff", fork, "--name-status"}, {"fork", "patch", "busy"}} {
		if out := l.ok(args...); !strings.Contains(out, "new") || !strings.Contains(out, "run.sh") {
			t.Errorf("%v: %s", args, out)
		}
	}
	for _, args := range [][]string{{"fork", "show", fork}, {"fork", "ls"}, {"inspect", fork}, {"checkpoint", "ls"}, {"doctor"}} {
		l.ok(args...)
	}
	first := l.seal(fork)
	l.shell(s.dir, "echo y >>new")
	second := l.seal(fork)
	if first.Checkpoint == second.Checkpoint {
		t.Error("two states, one checkpoint")
	}
	if got := l.ok("checkpoint", "cat", second.Checkpoint, "new"); got != "x\ny\n" {
		t.Errorf("sealed new is %q", got)
	}
	l.shell(s.dir, `test "$(cat new)" = "x
y"`)
	s.stop()
}
