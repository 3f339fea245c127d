package isolate

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// mountEntry is one line of /proc/PID/mountinfo.
type mountEntry struct {
	ID, Parent int
	Dev        string // "major:minor" of the superblock; the same for every mount that shows it
	Root       string // the directory of the superblock that this mount shows
	Point      string // where it is
	Options    string // of this mount
	FSType     string
	Source     string
	Super      string // options of the superblock
}

func readMounts() ([]mountEntry, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(data)
}

// parseMounts reads the text of a mountinfo file. Order is the kernel's: a mount comes after the one it is on.
func parseMounts(data []byte) ([]mountEntry, error) {
	var out []mountEntry
	for _, line := range bytes.Split(data, []byte{'\n'}) {
		if len(line) == 0 {
			continue
		}
		left, right, ok := strings.Cut(string(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 2 {
			return nil, fmt.Errorf("mountinfo: malformed line %q", line)
		}
		id, err1 := strconv.Atoi(l[0])
		parent, err2 := strconv.Atoi(l[1])
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("mountinfo: malformed line %q", line)
		}
		m := mountEntry{ID: id, Parent: parent, Dev: l[2], Root: unescape(l[3]), Point: unescape(l[4]), Options: l[5], FSType: r[0], Source: unescape(r[1])}
		if len(r) > 2 {
			m.Super = strings.Join(r[2:], " ")
		}
		// The kernel appends this to the root of a mount whose directory was removed.
		m.Root = strings.TrimSuffix(m.Root, "//deleted")
		out = append(out, m)
	}
	return out, nil
}

// unescape undoes the kernel's \ooo for space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// superOption returns the value of one comma-separated option of the superblock.
func (m mountEntry) superOption(name string) (string, bool) {
	for _, o := range strings.Split(m.Super, ",") {
		if k, v, ok := strings.Cut(o, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}
