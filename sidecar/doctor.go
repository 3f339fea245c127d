package sidecar

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tine/fs"
	"tine/sidecar/record"
	"tine/snapshot"
	"tine/snapshot/durable"
)

// Finding is one line of a diagnosis.
type Finding struct {
	Schema string `json:"schema"`
	Check  string `json:"check"`
	Level  string `json:"level" doc:"ok, note (something is slower or missing) or problem (something doesn't work)"`
	Found  string `json:"found"`
	Remedy string `json:"remedy" doc:"what to do; empty when all is well"`
}

// Doctor looks at what the host offers and changes nothing.
func Doctor(store string) []Finding {
	var all []Finding
	add := func(check, level, found, remedy string) {
		all = append(all, Finding{"tine.finding/v1", check, level, found, remedy})
	}
	check := func(name string, do func() (level, found, remedy string)) {
		level, found, remedy := do()
		add(name, level, found, remedy)
	}
	check("kernel", checkKernel)
	check("privileges", checkPrivileges)
	check("/dev/fuse", checkFuse)
	check("mount api", checkMountAPI)
	check("fusectl", checkFusectl)
	check("namespaces", checkNamespaces)
	check("cgroups", checkCgroups)
	check("home view", checkOverlay)
	check("git", checkGit)
	check("store", func() (string, string, string) { return checkStore(store) })
	check("space", func() (string, string, string) { return checkSpace(store) })
	check("mounts", checkMounts)
	check("runs", func() (string, string, string) { return checkRuns(store) })
	return all
}

func checkKernel() (level, found, remedy string) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "problem", err.Error(), ""
	}
	release := unix.ByteSliceToString(u.Release[:])
	var major, minor int
	fmt.Sscanf(release, "%d.%d", &major, &minor)
	if major < 5 || major == 5 && minor < 15 {
		return "problem", "Linux " + release, "use Linux 5.15 or newer"
	}
	if major < 6 || major == 6 && minor < 6 {
		return "note", "Linux " + release, "birth times and temporary files in forks need Linux 6.6"
	}
	return "ok", "Linux " + release, ""
}

func checkPrivileges() (level, found, remedy string) {
	if os.Geteuid() != 0 {
		return "problem", fmt.Sprintf("user %d", os.Geteuid()), "mounting forks and isolating runs needs root"
	}
	var header = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return "problem", err.Error(), ""
	}
	if data[unix.CAP_SYS_ADMIN/32].Effective&(1<<(unix.CAP_SYS_ADMIN%32)) == 0 {
		return "problem", "root without CAP_SYS_ADMIN", "in a container, run it with --privileged"
	}
	return "ok", "root with CAP_SYS_ADMIN", ""
}

func checkFuse() (level, found, remedy string) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) && os.Geteuid() != 0 {
		return "problem", err.Error(), "it is opened by root"
	}
	if err != nil {
		return "problem", err.Error(), "load the fuse module (modprobe fuse); in a container, pass --device /dev/fuse"
	}
	unix.Close(fd)
	return "ok", "can be opened", ""
}

func checkMountAPI() (level, found, remedy string) {
	fd, err := unix.Fsopen("fuse", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return "problem", "fsopen: " + err.Error(), "forks are mounted with the mount API of Linux 5.2 by root"
	}
	unix.Close(fd)
	return "ok", "fsopen, fsmount, move_mount", ""
}

func checkFusectl() (level, found, remedy string) {
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/fuse/connections", &st); err != nil {
		return "note", "no /sys/fs/fuse/connections", "it is mounted in private where it is needed"
	}
	if st.Type != 0x65735543 {
		return "note", "not mounted", "it is mounted in private where it is needed"
	}
	return "ok", "mounted", ""
}

func checkNamespaces() (level, found, remedy string) {
	var missing []string
	for _, ns := range []string{"mnt", "pid", "ipc", "uts", "net", "cgroup"} {
		if _, err := os.Stat("/proc/self/ns/" + ns); err != nil {
			missing = append(missing, ns)
		}
	}
	if missing != nil {
		return "problem", "missing: " + strings.Join(missing, ", "), "runs need a kernel with these namespaces"
	}
	return "ok", "mnt, pid, ipc, uts, net, cgroup", ""
}

func checkCgroups() (level, found, remedy string) {
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &st); err != nil {
		return "note", "no /sys/fs/cgroup", "--memory, --cpus and --pids are refused"
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		b, _ := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
		have := strings.Fields(string(b))
		for _, want := range []string{"memory", "cpu", "pids"} {
			if !slices.Contains(have, want) {
				return "note", "v2 without " + want, "limits that need it are refused"
			}
		}
		return "ok", "v2 with " + strings.Join(have, ", "), ""
	}
	var have []string
	for _, c := range []string{"memory", "cpu", "pids", "freezer"} {
		if _, err := os.Stat("/sys/fs/cgroup/" + c); err == nil {
			have = append(have, c)
		}
	}
	if len(have) < 4 {
		return "note", "v1 with " + strings.Join(have, ", "), "limits that need another controller are refused"
	}
	return "ok", "v1 with " + strings.Join(have, ", "), ""
}

func checkOverlay() (level, found, remedy string) {
	b, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return "note", err.Error(), ""
	}
	if !strings.Contains(string(b), "\toverlay\n") {
		return "note", "no overlayfs", "a run's home is empty instead of a private view; modprobe overlay"
	}
	return "ok", "overlayfs", ""
}

func checkGit() (level, found, remedy string) {
	path, err := exec.LookPath("git")
	if err != nil {
		return "note", "no git on PATH", "imports need none; programs in a workspace may"
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return "note", path + ": " + err.Error(), ""
	}
	return "ok", strings.TrimSpace(string(out)), ""
}

func checkStore(dir string) (level, found, remedy string) {
	s, err := snapshot.Open(dir, snapshot.Options{ReadOnly: true})
	if errors.Is(err, snapshot.ErrNoStore) {
		return "ok", "none yet; the first import makes it", ""
	}
	if err != nil {
		return "problem", err.Error(), "use another --store, or the tine that wrote this one"
	}
	defer s.Close()
	return "ok", s.Dir(), ""
}

// lowSpace is where doctor begins to warn: 1 GiB is what a handful of builds leave in their forks.
const lowSpace = 1 << 30

func checkSpace(dir string) (level, found, remedy string) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == nil {
			break
		}
		if parent := filepath.Dir(dir); parent == dir || !errors.Is(err, unix.ENOENT) {
			return "problem", err.Error(), ""
		} else {
			dir = parent
		}
	}
	free := st.Bavail * uint64(st.Bsize)
	found = fmt.Sprintf("%.1f GiB free at %s", float64(free)/(1<<30), dir)
	if free < lowSpace {
		return "note", found, "make room, or use a --store on a larger disk"
	}
	return "ok", found, ""
}

// checkMounts looks for mounts whose server is gone.
func checkMounts() (level, found, remedy string) {
	mounts, err := fs.Mountpoints()
	if err != nil {
		return "problem", err.Error(), ""
	}
	for _, m := range mounts {
		var st unix.Statfs_t
		if unix.Statfs(m.Path, &st) == unix.ENOTCONN {
			return "note", "the server of " + m.Path + " is gone", "mount the fork there again, or umount -l " + ShellWord(m.Path)
		}
	}
	return "ok", fmt.Sprintf("%d of tine's", len(mounts)), ""
}

// checkRuns looks for runs whose process is gone.
func checkRuns(store string) (level, found, remedy string) {
	runs, err := record.Dir{FS: durable.OS, Path: filepath.Join(store, "runs")}.List()
	if err != nil {
		return "problem", err.Error(), ""
	}
	lost, pending := "", ""
	for _, r := range runs {
		if r.State == record.Lost {
			lost = shortID(r.ID)
		}
		if r.Pending {
			pending = shortID(r.ID)
		}
	}
	switch {
	case lost != "":
		return "note", "run " + lost + " was lost with its process", "clear it away with tine runs rm " + lost
	case pending != "":
		return "note", "run " + pending + " has left something behind", "clear it away with tine runs rm " + pending
	}
	return "ok", fmt.Sprintf("%d recorded", len(runs)), ""
}
