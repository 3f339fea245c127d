package isolate

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hostSockets lists the file names of the unix sockets that are bound now, in every network namespace that a process is
// in: names of sockets in the file system know no network namespace. Names that no longer exist are left out.
func hostSockets() []string {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	return socketsOf(append([]string{"/proc/self"}, procs...), procs)
}

// socketsOf reads the network namespaces of some processes (directories in /proc). Names that are relative to their
// owner's directory are looked for in owners.
func socketsOf(procs, owners []string) []string {
	names := map[string]string{} // socket inode -> name that it is bound to
	spaces := map[string]bool{}
	for _, p := range procs {
		ns, err := os.Readlink(p + "/ns/net")
		if err != nil || spaces[ns] {
			continue
		}
		data, err := os.ReadFile(p + "/net/unix")
		if err != nil {
			continue
		}
		spaces[ns] = true
		for inode, name := range parseSockets(data) {
			names[inode] = name
		}
	}
	elsewhere := absentPoints()
	out := map[string]bool{}
	relative := map[string]string{} // inode -> name
	for inode, name := range names {
		// What is on a mount that a view leaves out isn't looked at: its server may not answer.
		if slices.ContainsFunc(elsewhere, func(point string) bool { return below(name, point) }) && !strings.HasPrefix(name, "/proc/self/") {
			continue
		}
		if strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "/proc/self/") {
			addSocket(out, name)
		} else {
			relative[inode] = name
		}
	}
	if len(relative) > 0 {
		resolveRelative(owners, relative, out)
	}
	list := make([]string, 0, len(out))
	for s := range out {
		list = append(list, s)
	}
	return list
}

// absentPoints lists the mount points of what a view leaves out.
func absentPoints() []string {
	mounts, err := readMounts()
	if err != nil {
		return nil
	}
	var out []string
	for _, m := range mounts {
		if leftOut(m.FSType) && m.Point != "/" {
			out = append(out, m.Point)
		}
	}
	return out
}

// parseSockets maps the inodes of sockets to their names in the file system. Abstract names begin with @.
func parseSockets(data []byte) map[string]string {
	out := map[string]string{}
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Scan() // the heading
	for sc.Scan() {
		// Fields are padded, and the name may hold spaces.
		f := compact(sc.Text())
		if len(f) == 8 && !strings.HasPrefix(f[7], "@") {
			out[f[6]] = f[7]
		}
	}
	return out
}

// compact splits into at most eight fields; the eighth is the rest of the line.
func compact(line string) []string {
	var out []string
	for len(out) < 7 {
		line = strings.TrimLeft(line, " ")
		i := strings.IndexByte(line, ' ')
		if i < 0 {
			if line != "" {
				out = append(out, line)
			}
			return out
		}
		out, line = append(out, line[:i]), line[i+1:]
	}
	return append(out, line)
}

func addSocket(out map[string]bool, name string) {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return
	}
	if st, err := os.Lstat(real); err == nil && st.Mode()&os.ModeSocket != 0 {
		out[real] = true
	}
}

// resolveRelative finds sockets that were bound by a name relative to their owner's directory (long paths are bound that
// way), as far as an owner still has that directory.
func resolveRelative(procs []string, relative map[string]string, out map[string]bool) {
	for _, p := range procs {
		fds, err := os.ReadDir(p + "/fd")
		if err != nil {
			continue
		}
		for _, fd := range fds {
			target, err := os.Readlink(p + "/fd/" + fd.Name())
			if err != nil || !strings.HasPrefix(target, "socket:[") {
				continue
			}
			name, ok := relative[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")]
			if !ok {
				continue
			}
			if rest, isSelf := strings.CutPrefix(name, "/proc/self/"); isSelf {
				addSocket(out, p+"/"+rest)
				continue
			}
			if cwd, err := os.Readlink(p + "/cwd"); err == nil {
				addSocket(out, filepath.Join(cwd, name))
			}
		}
	}
}
