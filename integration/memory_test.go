package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// rss is a process's resident memory in KiB.
func (l *lab) rss(pid int) int {
	l.t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "status"))
	l.must(err)
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		l.t.Fatalf("no VmRSS of process %d", pid)
	}
	n, err := strconv.Atoi(string(m[1]))
	l.must(err)
	return n
}

// TestMemoryDoesNotGrowWithWhatWasSeen (case 59): walking 50,000 files again and again, with few descriptors, and
// editing one file byte by byte (case 29) leave the server's memory and the fork's files bounded.
func TestMemoryDoesNotGrowWithWhatWasSeen(t *testing.T) {
	l := newLab(t)
	repo, err := largeRepo()
	l.must(err)
	var old unix.Rlimit
	l.must(unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	fork := l.fork(l.importGit(repo).Checkpoint)
	s := l.mount(fork, l.path("m"))
	few := unix.Rlimit{Cur: 64, Max: old.Max}
	l.must(unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_NOFILE, &few, nil))
	l.shell(s.dir, "find . -ls >/dev/null")
	first := l.rss(s.cmd.Process.Pid)
	for range 2 {
		l.shell(s.dir, "find services -name '*.sh' -exec cat {} + >/dev/null; find . -ls >/dev/null")
	}
	last := l.rss(s.cmd.Process.Pid)
	t.Logf("resident after one walk %d MiB, after three %d MiB", first>>10, last>>10)
	if last > first+first/2+(32<<10) {
		t.Errorf("resident memory grew from %d to %d KiB", first, last)
	}
	if last > 400<<10 {
		t.Errorf("%d MiB resident for 50,000 files", last>>10)
	}
	l.shell(s.dir, `python3 -c "
import os
f = os.open('services/a', os.O_RDWR | os.O_CREAT)
os.ftruncate(f, 1 << 22)
for r in range(3):
    for i in range(20000): os.pwrite(f, b'x', (i * 7919) % (1 << 22))
"`)
	t.Logf("after 60,000 writes of a byte %d MiB", l.rss(s.cmd.Process.Pid)>>10)
	if now := l.rss(s.cmd.Process.Pid); now > last+(64<<10) {
		t.Errorf("resident memory grew from %d to %d KiB by 60,000 writes of one byte", last, now)
	}
	s.end(syscall.SIGTERM)
}
