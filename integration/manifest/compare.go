package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Rules say what Compare leaves out. The zero value compares everything but inode numbers.
type Rules struct {
	// NoOwners leaves out uid and gid.
	NoOwners bool
	// NoMtime leaves out modification times; NoDirMtime those of directories only; RecentMtime those that are
	// later than it on both sides (ns since 1970; 0: off), for trees that were changed side by side.
	NoMtime     bool
	NoDirMtime  bool
	RecentMtime int64
	// NoRoot leaves out the root directory's own attributes.
	NoRoot bool
	// Inodes also compares inode numbers.
	Inodes bool
	// SkipXattr leaves out attributes by name.
	SkipXattr func(name string) bool
}

// Compare lists the differences, in order of paths; a and b are the two sides' names in the text.
func Compare(a string, x Manifest, b string, y Manifest, r Rules) []string {
	paths := map[string]bool{}
	for p := range x {
		paths[p] = true
	}
	for p := range y {
		paths[p] = true
	}
	var out []string
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		if p == "." && r.NoRoot {
			continue
		}
		e, inX := x[p]
		f, inY := y[p]
		switch {
		case !inX:
			out = append(out, fmt.Sprintf("%q: only in %s", p, b))
		case !inY:
			out = append(out, fmt.Sprintf("%q: only in %s", p, a))
		default:
			if s, t := describe(e, f, r), describe(f, e, r); s != t {
				out = append(out, fmt.Sprintf("%q: %s has %s, %s has %s", p, a, s, b, t))
			}
		}
	}
	return out
}

// describe is what counts of e, when it is compared with other.
func describe(e, other Entry, r Rules) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%07o", e.Mode)
	if !r.NoOwners {
		fmt.Fprintf(&s, " %d:%d", e.UID, e.GID)
	}
	dir := e.Mode&unix.S_IFMT == unix.S_IFDIR
	recent := r.RecentMtime != 0 && e.Mtime >= r.RecentMtime && other.Mtime >= r.RecentMtime
	switch {
	case r.NoMtime || dir && r.NoDirMtime:
	case recent:
		s.WriteString(" mtime=recent")
	default:
		fmt.Fprintf(&s, " mtime=%d", e.Mtime)
	}
	if !dir {
		fmt.Fprintf(&s, " nlink=%d", e.Nlink)
	}
	if e.Group != "" {
		fmt.Fprintf(&s, " same-as=%q", e.Group)
	}
	if e.Mode&unix.S_IFMT == unix.S_IFREG {
		fmt.Fprintf(&s, " size=%d sum=%s", e.Size, e.Sum)
	}
	if e.Target != "" {
		fmt.Fprintf(&s, " -> %q", e.Target)
	}
	if e.Rdev != 0 {
		fmt.Fprintf(&s, " rdev=%x", e.Rdev)
	}
	if r.Inodes {
		fmt.Fprintf(&s, " ino=%d", e.Ino)
	}
	for _, k := range slices.Sorted(maps.Keys(e.Xattrs)) {
		if r.SkipXattr == nil || !r.SkipXattr(k) {
			fmt.Fprintf(&s, " %s=%x", k, e.Xattrs[k])
		}
	}
	return s.String()
}

// Inconsistent lists where m contradicts itself: a directory entry's type or inode number that is not what stat
// says, or a link count lower than the links that were seen.
func Inconsistent(m Manifest) []string {
	var out []string
	seen := map[string]uint64{}
	for p, e := range m {
		if e.Group != "" {
			seen[e.Group]++
		}
		if p == "." {
			continue
		}
		if e.DType != 0 && uint32(e.DType) != e.Mode&unix.S_IFMT>>12 {
			out = append(out, fmt.Sprintf("%q: listed with type %d, has mode %07o", p, e.DType, e.Mode))
		}
		if e.DIno != e.Ino {
			out = append(out, fmt.Sprintf("%q: listed with inode %d, has %d", p, e.DIno, e.Ino))
		}
	}
	for p, n := range seen {
		if m[p].Nlink < n {
			out = append(out, fmt.Sprintf("%q: has %d links, nlink says %d", p, n, m[p].Nlink))
		}
	}
	slices.Sort(out)
	return out
}
