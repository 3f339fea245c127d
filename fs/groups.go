package fs

import (
	"bytes"
	"os"
	"strconv"
)

// groupsOf reads a process's supplementary groups when they are asked for: the request has none, and few answers
// depend on them. A process that has gone, or that this pid namespace doesn't show (pid 0), has none.
func groupsOf(pid uint32) func() []uint32 {
	if pid == 0 {
		return nil
	}
	return func() []uint32 {
		b, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(pid), 10) + "/status")
		if err != nil {
			return nil
		}
		return parseGroups(b)
	}
}

// parseGroups finds the Groups line of a /proc status file.
func parseGroups(status []byte) []uint32 {
	_, rest, ok := bytes.Cut(status, []byte("\nGroups:"))
	if !ok {
		return nil
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	var groups []uint32
	for _, w := range bytes.Fields(line) {
		if g, err := strconv.ParseUint(string(w), 10, 32); err == nil {
			groups = append(groups, uint32(g))
		}
	}
	return groups
}
