package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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
