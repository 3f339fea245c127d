package isolate

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroup is a run's control group, in each hierarchy that is used. Limits are set on the group, the program lives in its
// child "payload": whoever gets at the files of the payload can't lift the limits.
type Cgroup struct {
	V2 string            // directory in the unified hierarchy, empty if there is none
	V1 map[string]string // directory by controller ("memory", "cpu", "pids", "freezer"); empty on a pure v2 host
}

// parentGroup holds the groups of all runs, directly under the root (v2) or under the caller's own group (v1).
const parentGroup = "tine"

// payload is the group in which the program is.
const payload = "payload"

// newCgroup makes a run's group with its limits. Unenforceable limits are refused before anything is made.
func newCgroup(limits Limits) (*Cgroup, error) {
	mounts, err := readMounts()
	if err != nil {
		return nil, setupErr("read mounts", err)
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, setupErr("read own cgroup", err)
	}
	return makeCgroup(findHierarchies(mounts, self), limits)
}

func makeCgroup(h hierarchies, limits Limits) (*Cgroup, error) {
	settings, err := h.settings(limits)
	if err != nil {
		return nil, err
	}
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		return nil, setupErr("random", err)
	}
	name := fmt.Sprintf("run-%d-%d-%s", os.Getpid(), startTime(os.Getpid()), hex.EncodeToString(random))
	g := &Cgroup{V1: map[string]string{}}
	undo := func(err error) (*Cgroup, error) {
		g.remove(time.Second)
		return nil, err
	}
	if h.v2 != "" {
		if g.V2, err = makeGroup(h.v2, name); err != nil {
			return undo(setupErr("make cgroup", err))
		}
	}
	for _, c := range []string{"freezer", "memory", "cpu", "pids"} {
		dir := h.v1[c]
		if dir == "" {
			continue
		}
		made := ""
		for other, d := range g.V1 { // co-mounted controllers share a directory
			if h.v1[other] == dir {
				made = d
			}
		}
		if made == "" {
			if made, err = makeGroup(dir, name); err != nil {
				return undo(setupErr("make cgroup ("+c+")", err))
			}
		}
		g.V1[c] = made
	}
	for _, s := range settings {
		dir := g.V2
		if s.v1 != "" {
			dir = g.V1[s.v1]
		}
		err := writeControl(filepath.Join(dir, s.file), s.value)
		if err != nil && !(s.optional && errors.Is(err, os.ErrNotExist)) {
			return undo(&UnsupportedError{What: s.what, Reason: err.Error()})
		}
	}
	return g, nil
}

// dirs lists the group's directories, each once.
func (g *Cgroup) dirs() []string {
	var out []string
	if g.V2 != "" {
		out = append(out, g.V2)
	}
	for _, c := range []string{"freezer", "memory", "cpu", "pids"} {
		if d := g.V1[c]; d != "" && !contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// Payload lists the directories whose cgroup.procs name the run's processes; a freezer acts on these.
func (g *Cgroup) Payload() []string {
	var out []string
	for _, d := range g.dirs() {
		out = append(out, filepath.Join(d, payload))
	}
	return out
}

func (g *Cgroup) kind() string {
	switch {
	case g.V2 != "" && len(g.V1) > 0:
		return "hybrid"
	case g.V2 != "":
		return "v2"
	case len(g.V1) > 0:
		return "v1"
	}
	return "none"
}

// add moves a process into the group.
func (g *Cgroup) add(pid int) error {
	for _, d := range g.Payload() {
		if err := writeControl(filepath.Join(d, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// kill ends every process, frozen or not.
func (g *Cgroup) kill() {
	if g.V2 != "" {
		writeControl(filepath.Join(g.V2, "cgroup.kill"), "1")
	}
	dirs := g.Payload()
	if len(dirs) > 0 {
		data, _ := os.ReadFile(filepath.Join(dirs[0], "cgroup.procs"))
		for _, f := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
	g.thaw()
}

// thaw undoes a freeze: a frozen v1 group can't even die.
func (g *Cgroup) thaw() {
	for _, d := range g.Payload() {
		writeControl(filepath.Join(d, "freezer.state"), "THAWED")
		writeControl(filepath.Join(d, "cgroup.freeze"), "0")
	}
}

// oomKilled reports whether the memory limit killed a process.
func (g *Cgroup) oomKilled() bool {
	files := []string{filepath.Join(g.V2, "memory.events")}
	if d := g.V1["memory"]; d != "" {
		files = []string{filepath.Join(d, "memory.oom_control"), filepath.Join(d, payload, "memory.oom_control")}
	}
	for _, file := range files {
		data, _ := os.ReadFile(file)
		for _, line := range strings.Split(string(data), "\n") {
			if n, ok := strings.CutPrefix(line, "oom_kill "); ok && n != "0" {
				return true
			}
		}
	}
	return false
}

// remove deletes the directories, waiting for their processes to be gone.
func (g *Cgroup) remove(patience time.Duration) error {
	deadline := time.Now().Add(patience)
	var failed error
	for _, d := range g.dirs() {
		for {
			unix.Rmdir(filepath.Join(d, payload))
			err := unix.Rmdir(d)
			if err == nil || err == unix.ENOENT {
				unix.Rmdir(filepath.Dir(d)) // the parent, if this was the last run
				break
			}
			if time.Now().After(deadline) {
				failed = fmt.Errorf("remove cgroup %s: %w", d, err)
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return failed
}
