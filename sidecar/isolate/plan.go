package isolate

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
)

// plan says what of the host's tree must not be in a view. Paths are the host's.
type plan struct {
	Cover  []string // directories and files to cover with nothing
	Absent []string // mount points whose mounts are left out
}

// location is a file independent of the path by which it was found.
type location struct {
	dev  string // superblock, as in mountinfo
	path string // inside the superblock
}

// volatileTypes are file systems of the kernel's own state: the view has its own of those it needs.
var volatileTypes = map[string]bool{
	"proc": true, "sysfs": true, "devtmpfs": true, "devpts": true, "cgroup": true, "cgroup2": true, "mqueue": true, "debugfs": true,
	"tracefs": true, "securityfs": true, "bpf": true, "configfs": true, "fusectl": true, "pstore": true, "efivarfs": true, "autofs": true,
	"binfmt_misc": true, "rpc_pipefs": true, "nsfs": true, "selinuxfs": true, "hugetlbfs": true, "nfsd": true, "resctrl": true,
}

// leftOut reports whether mounts of this type have no place in a view. FUSE mounts are out because nobody can tell what
// they mirror (bindfs, other forks); fuseblk is a disk.
func leftOut(fstype string) bool {
	return volatileTypes[fstype] || fstype == "fuse" || strings.HasPrefix(fstype, "fuse.")
}

// planner is plan's view of the machine, replaceable in tests.
type planner struct {
	mounts []mountEntry
	// mountID returns the id of the mount on which a path ends, following no symlink; 0 if that can't be told, and false if
	// there is no such path.
	mountID func(path string) (id int, there bool)
	// backing lists the files that hold what is on a block device (loop devices).
	backing func(dev string) []string
	homes   []string // the home directory, by the caller's name and by its real one
}

// makePlan finds every place that shows something to hide. hide holds real paths (symlinks resolved) that exist. So does
// also, of single files (sockets, swap files) whose absence nobody asked for: they never refuse a run.
//
// For each hidden path its location (superblock, path in it) is computed, and those of the mounts beneath it. Each mount
// of the same superblock then shows it if its root is an ancestor (the path to cover lies inside the mount) or a
// descendant (the whole mount is covered). Overlays over directories that hold or lie in a hidden one count as such mounts.
func (p planner) makePlan(hide, also []string) (plan, error) {
	covers := map[string]bool{}
	add := func(c, because string, must bool) error {
		for _, e := range essential(p.homes) {
			if within(e, c) {
				if !must {
					return nil
				}
				if c == because {
					return &RefusedError{Rule: "S13", Reason: fmt.Sprintf("hiding %s would cover %s; put the source elsewhere or lift the isolation (--writable-host)", because, e)}
				}
				return &RefusedError{Rule: "S13", Reason: fmt.Sprintf("hiding %s, also mounted as %s, would cover %s; put the source elsewhere or lift the isolation (--writable-host)", because, c, e)}
			}
		}
		covers[c] = true
		return nil
	}
	for _, h := range hide {
		if err := add(h, h, true); err != nil {
			return plan{}, err
		}
		for _, loc := range p.locations(h) {
			must := loc.own
			for _, t := range p.twins(loc.location) {
				if err := add(t, h, must); err != nil {
					return plan{}, err
				}
			}
			if p.backing != nil {
				also = append(also, p.backing(loc.dev)...)
			}
		}
	}
	for _, s := range also {
		covers[s] = true
		if m, ok := p.mountOf(s); ok {
			for _, t := range p.twins(location{m.Dev, inside(m, s)}) {
				covers[t] = true
			}
		}
	}

	var out plan
	for c := range covers {
		out.Cover = append(out.Cover, c)
	}
	sort.Strings(out.Cover)
	seen := map[string]bool{}
	for _, m := range p.mounts {
		if leftOut(m.FSType) && m.Point != "/" && !seen[m.Point] {
			seen[m.Point] = true
			out.Absent = append(out.Absent, m.Point)
		}
	}
	sort.Strings(out.Absent)
	return out, nil
}

// found is a location to hide; own is false for what is merely mounted beneath a hidden directory.
type found struct {
	location
	own bool
}

func (p planner) locations(h string) []found {
	var out []found
	if m, ok := p.mountOf(h); ok {
		out = append(out, found{location{m.Dev, inside(m, h)}, true})
	}
	for _, m := range p.mounts {
		if below(m.Point, h) && !leftOut(m.FSType) {
			out = append(out, found{location{m.Dev, m.Root}, false})
		}
	}
	return out
}

// mountOf returns the mount on which a path lies: the one that the kernel names, else the last with the longest point that
// is a prefix (which may be buried under another).
func (p planner) mountOf(name string) (mountEntry, bool) {
	if p.mountID != nil {
		if id, there := p.mountID(name); there && id != 0 {
			for _, m := range p.mounts {
				if m.ID == id && within(name, m.Point) {
					return m, true
				}
			}
		}
	}
	var best mountEntry
	ok := false
	for _, m := range p.mounts {
		if within(name, m.Point) && (!ok || len(m.Point) >= len(best.Point)) {
			best, ok = m, true
		}
	}
	return best, ok
}

// inside translates a path on a mount to one inside its superblock.
func inside(m mountEntry, name string) string {
	rel := strings.TrimPrefix(strings.TrimPrefix(name, m.Point), "/")
	return path.Join(m.Root, rel)
}

// twins lists the paths at which a location, or all of what lies below it, is shown.
func (p planner) twins(loc location) []string {
	var out []string
	for _, m := range p.mounts {
		if m.Dev == loc.dev {
			out = append(out, p.through(m, m.Root, loc.path)...)
			continue
		}
		if m.FSType != "overlay" {
			continue
		}
		for _, layer := range overlayLayers(m) {
			lm, ok := p.mountOf(layer)
			if ok && lm.Dev == loc.dev {
				out = append(out, p.through(m, inside(lm, layer), loc.path)...)
			}
		}
	}
	return out
}

// through returns where a mount whose top is the directory root shows the directory or file target.
func (p planner) through(m mountEntry, root, target string) []string {
	switch {
	case within(target, root):
		c := path.Join(m.Point, strings.TrimPrefix(target, root))
		if root == "/" {
			c = path.Join(m.Point, target)
		}
		if p.mountID == nil {
			return []string{c}
		}
		// Buried under another mount, or gone, it shows nothing.
		if id, there := p.mountID(c); there && (id == 0 || id == m.ID) {
			return []string{c}
		}
	case below(root, target):
		return []string{m.Point}
	}
	return nil
}

// overlayLayers lists the directories that an overlay merges, as far as their names mean anything here.
func overlayLayers(m mountEntry) []string {
	var out []string
	for _, key := range []string{"lowerdir", "upperdir", "workdir"} {
		v, ok := m.superOption(key)
		if !ok {
			continue
		}
		for _, d := range strings.Split(v, ":") {
			if !strings.HasPrefix(d, "/") {
				continue
			}
			if real, err := filepath.EvalSymlinks(d); err == nil {
				out = append(out, real)
			}
		}
	}
	return out
}

// realPaths resolves what the caller wants hidden. What doesn't exist is dropped; what can't be examined is an error,
// since it can't be shown to be hidden.
func realPaths(hide []string) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	for _, h := range hide {
		if !filepath.IsAbs(h) {
			return nil, &SpecError{Field: "Hide", Problem: fmt.Sprintf("%q is not absolute", h)}
		}
		real, err := filepath.EvalSymlinks(h)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, &SetupError{Step: "hide " + h, Reason: err.Error()}
		}
		if !seen[real] {
			seen[real] = true
			out = append(out, real)
		}
	}
	return out, nil
}
