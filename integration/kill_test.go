package integration

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine/integration/ackwriter"
	"tine/integration/manifest"
	"tine/integration/testrepo"
)

// ackTree makes a directory for one writer, with something of each kind in it.
func (l *lab) ackTree(dir string) {
	l.t.Helper()
	l.must(os.MkdirAll(dir, 0o755))
	l.shell(dir, `
		mkdir -p d/e f
		for i in 1 2 3 4 5 6 7 8; do seq $i 4000 >base$i; seq $i 300 >d/small$i; done
		seq 1 60000 >d/e/large; truncate -s 1M f/sparse; echo end >>f/sparse
		ln base1 d/hard; ln -s ../base2 d/soft; mkfifo f/pipe; chmod 4755 base3; chown 500:500 base4 f
		setfattr -n user.x1 -v value base5
		find . -exec touch -h -d '2010-10-10 10:10:10.123456789' {} +`)
}

// follow starts one writer process in dir and keeps its mirror up to date; the channel gives the end.
func (l *lab) follow(dir string, m *ackwriter.Mirror, seed uint64) chan error {
	l.t.Helper()
	exe, err := os.Executable()
	l.must(err)
	cmd := exec.Command(exe, dir, fmt.Sprint(seed), "0")
	cmd.Env = append(testrepo.Env(), roleEnv+"=ackwriter")
	r, w, err := os.Pipe()
	l.must(err)
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	l.must(cmd.Start())
	w.Close()
	done := make(chan error, 1)
	go func() {
		err := m.Follow(r)
		if err != nil {
			_ = cmd.Process.Kill()
			_, _ = io.Copy(io.Discard, r)
		}
		r.Close()
		if werr := cmd.Wait(); err == nil {
			err = werr
		}
		done <- err
	}()
	return done
}

// TestO3_KillDuringWrites kills the server while two writers work, again and again: every operation that had
// returned is there after the next mount, and what the final seal exports is exactly that.
func TestO3_KillDuringWrites(t *testing.T) {
	l := newLab(t)
	rounds := *kills
	if rounds == 0 {
		rounds = 10
		if *long {
			rounds = 50
		}
	}
	writers := []string{"one", "two"}
	src := l.path("src")
	for _, w := range writers {
		l.ackTree(filepath.Join(src, w))
	}
	l.shell(l.dir, "cp -a src mirror")
	fork := l.fork(l.importDir(src).Checkpoint)
	m := l.path("m")
	seed := rand.Uint64N(1 << 40)
	t.Logf("%d rounds, seed %d", rounds, seed)
	r := rand.New(rand.NewPCG(seed, 2))
	mirrors := map[string]*ackwriter.Mirror{}
	for _, w := range writers {
		mirrors[w] = &ackwriter.Mirror{Dir: l.path("mirror", w), Since: time.Now().Add(-time.Minute).UnixNano()}
	}
	s := l.mount(fork, m)
	for round := range rounds {
		var done []chan error
		for i, w := range writers {
			done = append(done, l.follow(filepath.Join(m, w), mirrors[w], seed+uint64(round*2+i)))
		}
		time.Sleep(time.Duration(30+r.IntN(400)) * time.Millisecond)
		s.kill9()
		for i, d := range done {
			if err := <-d; err != nil {
				t.Fatalf("round %d, writer %s: %v", round, writers[i], err)
			}
		}
		s.detach()
		s = l.mount(fork, m)
		for _, w := range writers {
			diff, err := mirrors[w].Compare(filepath.Join(m, w))
			if err != nil || diff != nil {
				for _, d := range head(diff) {
					t.Logf("%s\n  after %s", d, strings.Join(mirrors[w].About(d), "\n        "))
				}
				t.Fatalf("round %d, writer %s, after %d operations: %v\n%s", round, w, mirrors[w].Acked, err, strings.Join(head(diff), "\n"))
			}
		}
	}
	acked := 0
	for _, w := range writers {
		acked += mirrors[w].Acked
	}
	t.Logf("%d operations acknowledged", acked)
	if acked < rounds*20 {
		t.Errorf("only %d operations in %d rounds: this tested nothing", acked, rounds)
	}
	sealed := l.seal(fork)
	l.same("mirror", l.manifest(l.path("mirror")), "workspace", l.manifest(m),
		manifest.Rules{RecentMtime: mirrors["one"].Since})
	l.ok("checkpoint", "export", sealed.Checkpoint, l.path("out"))
	l.same("workspace", l.manifest(m), "export", l.manifest(l.path("out")), manifest.Rules{})
	s.stop()
}

// TestDeadMountIsReplaced: after a kill the same command works again, without an umount, also when the kernel still
// has the dead root's attributes cached and when a program stays in it.
func TestDeadMountIsReplaced(t *testing.T) {
	l := newLab(t)
	fork := l.fork(l.importGit(l.smallRepo("repo")).Checkpoint)
	m := l.path("m")
	s := l.mount(fork, m)
	l.shell(m, "ls -laR >/dev/null; echo 1 >f")
	inside := exec.Command("sleep", "600")
	inside.Dir = m
	l.must(inside.Start())
	defer inside.Wait()
	defer inside.Process.Kill()
	for range 2 {
		l.shell(m, "stat . >/dev/null")
		s.kill9()
		s = l.mount(fork, m)
		l.shell(m, "test $(cat f) = 1")
		if n := len(mountsAt(m)); n != 1 {
			t.Errorf("%d mounts at the mount point", n)
		}
	}
	s.stop()
}

// TestCase60_KillWhileStarting (case 60): a server that is killed while it mounts, or while it starts a program in
// its own mount, dies, and what it held (the fork, the mount) is free again.
func TestCase60_KillWhileStarting(t *testing.T) {
	l := newLab(t)
	fork := l.fork(l.importGit(l.smallRepo("repo")).Checkpoint)
	m := l.mkdir("m")
	rounds := 15
	if *long {
		rounds = 100
	}
	for round := range rounds {
		for _, args := range [][]string{{"mount", fork, m}, {"fork", "exec", fork, "--", "sh", "-c", "ls -R >/dev/null"}} {
			cmd := l.tineCmd(args...)
			l.must(cmd.Start())
			started[cmd.Process.Pid] = true
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			_ = cmd.Process.Kill()
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended:
			case <-time.After(mountLimit):
				t.Fatalf("round %d: tine %s (process %d) did not die of SIGKILL", round, args[0], cmd.Process.Pid)
			}
			for mountsAt(m) != nil {
				l.must(unix.Unmount(m, unix.MNT_DETACH))
			}
		}
	}
	s := l.mount(fork, m)
	l.shell(m, "cat README.md >/dev/null")
	s.stop()
	l.ok("fork", "exec", fork, "--", "true")
	l.killedRuns = true
}
