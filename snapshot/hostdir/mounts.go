package hostdir

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// forkType is the type of the mounts of forks, as package fs makes them.
const forkType = "fuse.tine"

// mount is one line of /proc/self/mountinfo.
type mount struct {
	device string // major:minor
	point  string
	typ    string
}

func mounts() ([]mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []mount
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		before, after, ok := strings.Cut(s.Text(), " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 5 {
			continue
		}
		typ, _, _ := strings.Cut(after, " ")
		list = append(list, mount{fields[2], unescape(fields[4]), typ})
	}
	return list, s.Err()
}

// unescape undoes the kernel's octal escapes of white space and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b = append(b, byte(n))
				i += 3
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

// ForkMounts are the places below dir, relative to it, at which forks are mounted. Walks ask for them before they look
// at a name: a fork's server may be dead, or may be who walks, and then even a stat would wait for ever.
func ForkMounts(dir string) (map[string]bool, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return nil, err
	}
	list, err := mounts()
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, m := range list {
		if rel, ok := strings.CutPrefix(m.point, strings.TrimSuffix(abs, "/")+"/"); ok && m.typ == forkType {
			found[rel] = true
		}
	}
	return found, nil
}

// forkDevice reports whether a device is the one of a mounted fork.
func forkDevice(dev uint64) (bool, error) {
	list, err := mounts()
	want := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	for _, m := range list {
		if m.device == want && m.typ == forkType {
			return true, err
		}
	}
	return false, err
}
