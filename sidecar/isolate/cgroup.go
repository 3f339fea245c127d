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

// cfsPeriod is the kernel's default scheduling period.
const cfsPeriod = 100 * time.Millisecond

// hierarchies is where this host has its control groups.
type hierarchies struct {
	v2 string            // directory in which to make the parent group
	v1 map[string]string // the same by controller
}

func findHierarchies(mounts []mountEntry, self []byte) hierarchies {
	own := map[string]string{} // controller list as in /proc/self/cgroup -> path
	for _, line := range strings.Split(string(self), "\n") {
		if f := strings.SplitN(line, ":", 3); len(f) == 3 {
			for _, c := range strings.Split(f[1], ",") {
				own[c] = f[2]
			}
		}
	}
	h := hierarchies{v1: map[string]string{}}
	for _, m := range mounts {
		switch m.FSType {
		case "cgroup2":
			if h.v2 == "" && writable(m.Point) {
				h.v2 = m.Point
			}
		case "cgroup":
			for _, c := range strings.Split(m.Super, ",") {
				p, ok := own[c]
				if !ok || c == "" || h.v1[c] != "" {
					continue
				}
				// The mount may show a part of the hierarchy only (in a container).
				rel, ok := strings.CutPrefix(p+"/", strings.TrimSuffix(m.Root, "/")+"/")
				if !ok {
					rel = ""
				}
				if dir := filepath.Join(m.Point, rel); writable(dir) {
					h.v1[c] = dir
				}
			}
		}
	}
	return h
}

func writable(dir string) bool { return unix.Access(dir, unix.W_OK) == nil && !readOnlyFS(dir) }

func readOnlyFS(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) != nil || st.Flags&unix.ST_RDONLY != 0
}

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

// setting is one value to write into a new group.
type setting struct {
	what, v1, file, value string
	optional              bool // absence of the file is no failure
}

func (h hierarchies) settings(l Limits) ([]setting, error) {
	var out []setting
	use := func(what, controller string, v2, v1 []setting) error {
		if dir := h.v1[controller]; dir != "" {
			for _, s := range v1 {
				s.what, s.v1 = what, controller
				out = append(out, s)
			}
			if !exists(filepath.Join(dir, v1[0].file)) && !rootOnly(dir, v1[0].file) {
				return &UnsupportedError{What: what, Reason: "the kernel's " + controller + " controller has no " + v1[0].file}
			}
			return nil
		}
		if h.v2 == "" {
			return &UnsupportedError{What: what, Reason: "no writable control groups"}
		}
		if err := h.enable(controller); err != nil {
			return &UnsupportedError{What: what, Reason: err.Error()}
		}
		for _, s := range v2 {
			s.what = what
			out = append(out, s)
		}
		return nil
	}
	if l.Memory > 0 {
		v := strconv.FormatInt(l.Memory, 10)
		err := use("memory limit", "memory",
			[]setting{{file: "memory.max", value: v}, {file: "memory.swap.max", value: "0", optional: true}},
			[]setting{{file: "memory.limit_in_bytes", value: v}, {file: "memory.memsw.limit_in_bytes", value: v, optional: true}})
		if err != nil {
			return nil, err
		}
	}
	if l.CPUs > 0 {
		period := cfsPeriod.Microseconds()
		quota := int64(l.CPUs * float64(period))
		if quota < 1000 { // the kernel's least
			return nil, &UnsupportedError{What: "cpu limit", Reason: "less than 0.01 of a processor"}
		}
		err := use("cpu limit", "cpu",
			[]setting{{file: "cpu.max", value: fmt.Sprintf("%d %d", quota, period)}},
			[]setting{{file: "cpu.cfs_period_us", value: strconv.FormatInt(period, 10)}, {file: "cpu.cfs_quota_us", value: strconv.FormatInt(quota, 10)}})
		if err != nil {
			return nil, err
		}
	}
	if l.Pids > 0 {
		// Process 1 and its threads count too.
		v := strconv.FormatInt(l.Pids+initThreads, 10)
		s := []setting{{file: "pids.max", value: v}}
		if err := use("process limit", "pids", s, s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// initThreads is the allowance for process 1: GOMAXPROCS is 2 there, and a handful of its threads block.
const initThreads = 16

// rootOnly reports files that a hierarchy's top directory lacks but its children have.
func rootOnly(dir, file string) bool {
	return file == "pids.max" || !exists(filepath.Join(dir, "..", "cgroup.procs"))
}

// enable turns a v2 controller on for the children of the root and of the parent group.
func (h hierarchies) enable(controller string) error {
	have, err := os.ReadFile(filepath.Join(h.v2, "cgroup.controllers"))
	if err != nil {
		return err
	}
	if !contains(strings.Fields(string(have)), controller) {
		return fmt.Errorf("no %s controller in %s", controller, h.v2)
	}
	parent := filepath.Join(h.v2, parentGroup)
	if err := os.Mkdir(parent, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	for _, dir := range []string{h.v2, parent} {
		f := filepath.Join(dir, "cgroup.subtree_control")
		on, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if contains(strings.Fields(string(on)), controller) {
			continue
		}
		if err := writeControl(f, "+"+controller); err != nil {
			return err
		}
	}
	return nil
}

// writeControl writes to a file that the kernel made; it must not try to create it.
func writeControl(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

func exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}

// makeGroup makes PARENT/tine/NAME/payload, after removing what runs left whose caller was killed.
func makeGroup(dir, name string) (string, error) {
	parent := filepath.Join(dir, parentGroup)
	group := filepath.Join(parent, name)
	var err error
	for range 10 { // another run's end may remove the parent in between
		if err = os.Mkdir(parent, 0o755); err != nil && !os.IsExist(err) {
			return "", err
		}
		sweepOlder(parent, young)
		if err = os.Mkdir(group, 0o755); !os.IsNotExist(err) {
			break
		}
	}
	if err != nil {
		return "", err
	}
	return group, os.Mkdir(filepath.Join(group, payload), 0o755)
}

// young is the age below which a group isn't swept: its caller may be in another pid namespace and about to fill it.
const young = 10 * time.Second

// sweepOlder removes the groups of callers that are no more. Groups that still hold processes can't be removed and stay.
func sweepOlder(parent string, age time.Duration) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		f := strings.Split(e.Name(), "-")
		if info, err := e.Info(); len(f) != 4 || f[0] != "run" || err != nil || time.Since(info.ModTime()) < age {
			continue
		}
		pid, err1 := strconv.Atoi(f[1])
		start, err2 := strconv.ParseUint(f[2], 10, 64)
		if err1 != nil || err2 != nil || startTime(pid) == start {
			continue
		}
		unix.Rmdir(filepath.Join(parent, e.Name(), payload))
		unix.Rmdir(filepath.Join(parent, e.Name()))
	}
}

// startTime is the start of a process in clock ticks since boot; 0 when there is none.
func startTime(pid int) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	s := string(data)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) < 20 {
		return 0
	}
	t, _ := strconv.ParseUint(f[19], 10, 64)
	return t
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
