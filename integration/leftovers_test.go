package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func itoa(n int) string { return strconv.Itoa(n) }

// baseline is what existed before a test.
type baseline struct{ cgroups map[string]bool }

func takeBaseline() baseline {
	b := baseline{cgroups: map[string]bool{}}
	for _, g := range cgroups() {
		b.cgroups[g] = true
	}
	return b
}

// cgroups lists the control groups that bear tine's name, in every hierarchy.
func cgroups() []string {
	var out []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(strings.TrimPrefix(p, "/sys/fs/cgroup"), "tine") {
			out = append(out, p)
		}
		return nil // groups come and go while we look
	})
	return out
}

// settle is how long the kernel and dying processes get to finish.
const settle = 5 * time.Second

// checkLeftovers fails the test for everything that it left behind.
func (l *lab) checkLeftovers() {
	l.t.Helper()
	var left []string
	for end := time.Now().Add(settle); ; time.Sleep(20 * time.Millisecond) {
		if left = l.leftovers(); left == nil || time.Now().After(end) {
			break
		}
	}
	for _, what := range left {
		l.t.Errorf("left behind: %s", what)
	}
}

func (l *lab) leftovers() []string {
	var out []string
	for _, m := range mounts() {
		if m.point == l.dir || strings.HasPrefix(m.point, l.dir+"/") {
			out = append(out, "a mount of "+m.fstype+" at "+m.point)
		}
	}
	for pid, exe := range processes() {
		if exe == *binary {
			cmdline, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			out = append(out, "process "+pid+": "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	for _, g := range cgroups() {
		// The parent that holds the groups of runs may stay, and other processes' runs are theirs.
		if !l.killedRuns && !l.before.cgroups[g] && !strings.HasSuffix(g, "/tine") && !foreign(g) {
			out = append(out, "control group "+g)
		}
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range loops {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), l.dir+"/") {
			out = append(out, "loop device on "+strings.TrimSpace(string(b)))
		}
	}
	return append(out, l.storeLeftovers()...)
}

// started are the processes that the tests started themselves.
var started = map[int]bool{}

// foreign: the group of a run ("run-PID-…") whose process these tests did not start.
func foreign(group string) bool {
	m := regexp.MustCompile(`/run-(\d+)-`).FindStringSubmatch(group)
	if m == nil {
		return false
	}
	pid, err := strconv.Atoi(m[1])
	return err == nil && !started[pid]
}

func (l *lab) storeLeftovers() []string {
	var out []string
	tmp, err := os.ReadDir(filepath.Join(l.store, "tmp"))
	for _, e := range tmp {
		if err == nil && !l.killedRuns {
			out = append(out, "store file tmp/"+e.Name())
		}
	}
	if f, err := os.Open(filepath.Join(l.store, "lock")); err == nil {
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			out = append(out, "the store's lock is held")
		}
		f.Close()
	}
	return out
}

// processes maps pids to executables.
func processes() map[string]string {
	out := map[string]string{}
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, p := range links {
		if exe, err := os.Readlink(p); err == nil {
			out[strings.Split(p, "/")[2]] = strings.TrimSuffix(exe, " (deleted)")
		}
	}
	return out
}

// sweep unmounts and deletes everything at and below dir, whatever state a test left it in.
func sweep(dir string) {
	for range 10 {
		found := false
		all := mounts()
		for i := len(all) - 1; i >= 0; i-- {
			if p := all[i].point; p == dir || strings.HasPrefix(p, dir+"/") {
				found = true
				_ = unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			}
		}
		if !found {
			break
		}
	}
	_ = os.RemoveAll(dir)
}
