package isolate

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// marker is in everything that a program must not find. It is put together so that the binary doesn't hold it.
var marker = strings.Join([]string{"tine", "marker", "7c1e"}, "-")

// target is what the attacker is told about the host: more than it could find out.
type target struct {
	Paths      []string // directories that hold, or show, "secret"
	Sockets    []string
	Abstract   string
	Device     string // of the host's root
	DeviceNr   uint64
	Handles    []string // file handles of hidden directories, hex
	HandleTyp  int32
	HostPID    int
	Late       string // where the host mounts something later
	Executable string // where a copy of this binary is on the host
	Key        string
	Port       int
}

// attacks are run inside a view. Each returns what it got hold of that it should not have; nothing is a success.
var attacks = map[string]func(target) []string{
	"paths":         attackPaths,
	"umount":        attackUmount,
	"remount":       attackRemount,
	"mount-disk":    attackDisk,
	"userns":        attackUserns,
	"setns":         attackSetns,
	"proc-links":    attackProcLinks,
	"sockets":       attackSockets,
	"abstract":      attackAbstract,
	"ptrace":        attackPtrace,
	"kernel-writes": attackKernelWrites,
	"kernel-reads":  attackKernelReads,
	"handles":       attackHandles,
	"descriptors":   attackDescriptors,
	"propagation":   attackPropagation,
	"keyring":       attackKeyring,
	"kernel-log":    attackKernelLog,
	"vsock":         attackVsock,
	"chroot":        attackChroot,
	"init":          attackInit,
	"executable":    attackExecutable,
	"ipc":           attackIPC,
	"inject":        attackInject,
	"host-signal":   attackHostSignal,
	"cgroup-limits": attackLimits,
	"new-mount-api": attackMountAPI,
	"suid":          attackSetuid,
}

// attackMain is the attacking program: attack NAME TARGET.
func attackMain() int {
	runtime.LockOSThread()
	var tg target
	if len(os.Args) != 3 || json.Unmarshal([]byte(os.Args[2]), &tg) != nil {
		fmt.Println("bad arguments")
		return 2
	}
	f := attacks[os.Args[1]]
	if f == nil {
		fmt.Println("no such attack")
		return 2
	}
	found := f(tg)
	for _, s := range found {
		fmt.Println("GOT", s)
	}
	fmt.Println("attack done")
	return 0
}

// look reads everything under a directory that could hold the marker.
func look(dir string) []string {
	var got []string
	filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.Type().IsRegular() {
			f, err := os.Open(p)
			if err != nil {
				return nil
			}
			defer f.Close()
			data, _ := io.ReadAll(io.LimitReader(f, 1<<16))
			if bytes.Contains(data, []byte(marker)) {
				got = append(got, p)
			}
		}
		return nil
	})
	return got
}

func lookAll(tg target, prefix string) []string {
	var got []string
	for _, p := range tg.Paths {
		got = append(got, look(prefix+p)...)
	}
	return got
}

func attackPaths(tg target) []string {
	got := lookAll(tg, "")
	for _, p := range tg.Paths { // names through other links
		got = append(got, look("/proc/self/root"+p)...)
		got = append(got, look("/proc/thread-self/root"+p)...)
		os.Remove("/tmp/link")
		os.Symlink(p, "/tmp/link")
		got = append(got, look("/tmp/link/")...)
		if err := os.Rename(p, p+".moved"); err == nil {
			got = append(got, "renamed "+p)
		}
		if err := os.WriteFile(filepath.Join(p, "planted"), nil, 0o644); err == nil {
			got = append(got, "wrote into "+p)
		}
	}
	return got
}

func mountPoints() []string {
	mounts, _ := readMounts()
	var out []string
	for i := len(mounts) - 1; i >= 0; i-- {
		out = append(out, mounts[i].Point)
	}
	return out
}

func attackUmount(tg target) []string {
	var got []string
	for _, p := range mountPoints() {
		for _, flags := range []int{0, unix.MNT_DETACH, unix.MNT_FORCE, unix.MNT_EXPIRE} {
			if unix.Unmount(p, flags) == nil {
				got = append(got, "unmounted "+p)
			}
		}
	}
	return append(got, lookAll(tg, "")...)
}

func attackRemount(tg target) []string {
	var got []string
	for _, p := range append(mountPoints(), "/usr", "/etc") {
		if unix.Mount("", p, "", unix.MS_REMOUNT|unix.MS_BIND, "") == nil || unix.Mount("", p, "", unix.MS_REMOUNT, "") == nil {
			got = append(got, "remounted "+p)
		}
		attr := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV}
		if unix.MountSetattr(unix.AT_FDCWD, p, unix.AT_RECURSIVE, &attr) == nil {
			got = append(got, "changed attributes of "+p)
		}
	}
	os.Mkdir("/tmp/m", 0o755)
	for _, p := range append([]string{"/"}, tg.Paths...) {
		if unix.Mount(p, "/tmp/m", "", unix.MS_BIND, "") == nil {
			got = append(got, "bound "+p)
			unix.Unmount("/tmp/m", unix.MNT_DETACH)
		}
	}
	for _, dir := range []string{"/usr", "/etc", "/root/..", "/opt", "/var", "/"} {
		f := filepath.Join(dir, "tine-escape-test")
		if os.WriteFile(f, nil, 0o644) == nil {
			got = append(got, "wrote "+f)
			os.Remove(f)
		}
	}
	return got
}

func attackDisk(tg target) []string {
	var got []string
	if tg.Device != "" {
		for _, dir := range []string{"/workspace", "/tmp", "/dev", "/dev/shm", "/run", "/root"} {
			node := filepath.Join(dir, "disk")
			if unix.Mknod(node, unix.S_IFBLK|0o600, int(tg.DeviceNr)) == nil {
				got = append(got, "made a node for the disk: "+node)
			}
			if f, err := os.Open(node); err == nil {
				got = append(got, "opened the disk through "+node)
				f.Close()
			}
		}
		os.Mkdir("/tmp/m", 0o755)
		if unix.Mount(tg.Device, "/tmp/m", "ext4", unix.MS_RDONLY, "") == nil {
			got = append(got, "mounted the disk")
		}
		if out, err := exec.Command("/usr/sbin/debugfs", "-R", "stats", tg.Device).CombinedOutput(); err == nil && bytes.Contains(out, []byte("Inode count")) {
			got = append(got, "debugfs reads the disk")
		}
	}
	for _, dir := range []string{"/dev", "/workspace", "/run", "/mnt", "/var/lib"} {
		filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err != nil || d.Type()&os.ModeDevice == 0 {
				return nil
			}
			if d.Type()&os.ModeCharDevice == 0 {
				got = append(got, "block device "+p)
			}
			if dir != "/dev" {
				if fd, err := unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
					got = append(got, "opened device "+p)
					unix.Close(fd)
				}
			}
			return nil
		})
	}
	for _, p := range []string{"/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/fuse", "/dev/loop-control", "/dev/mapper/control", "/dev/kvm", "/dev/vsock", "/dev/net/tun"} {
		if _, err := os.Lstat(p); err == nil {
			got = append(got, p)
		}
	}
	return got
}

// attackUserns becomes root of a user namespace of its own, where it has every capability, and tries it all again.
func attackUserns(tg target) []string {
	if os.Getenv("IN_USERNS") == "" {
		data, _ := json.Marshal(tg)
		cmd := exec.Command("/proc/self/exe", "userns", string(data))
		cmd.Args[0] = "attack"
		cmd.Env = append(os.Environ(), "IN_USERNS=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWCGROUP | unix.CLONE_NEWIPC | unix.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		var got []string
		if err == nil {
			got = append(got, "a user namespace")
		}
		for _, l := range strings.Split(string(out), "\n") {
			if s, ok := strings.CutPrefix(l, "GOT "); ok {
				got = append(got, "in a user namespace: "+s)
			}
		}
		return got
	}
	var got []string
	got = append(got, attackUmount(tg)...)
	got = append(got, attackRemount(tg)...)
	got = append(got, attackMountAPI(tg)...)
	got = append(got, attackHandles(tg)...)
	got = append(got, attackLimits(tg)...)
	for _, m := range []struct{ fstype, data string }{{"proc", ""}, {"sysfs", ""}, {"devpts", ""}, {"mqueue", ""}, {"ext4", ""}, {"debugfs", ""}} {
		os.Mkdir("/tmp/new", 0o755)
		if unix.Mount(tg.Device, "/tmp/new", m.fstype, 0, m.data) == nil {
			if m.fstype != "devpts" && m.fstype != "mqueue" {
				got = append(got, "mounted "+m.fstype)
			}
			unix.Unmount("/tmp/new", unix.MNT_DETACH)
		}
	}
	// An overlay looks through what is mounted in its lower directory.
	for _, p := range tg.Paths {
		for dir := filepath.Dir(p); ; dir = filepath.Dir(dir) {
			for _, d := range []string{"up", "wk", "merged", "empty"} {
				os.Mkdir("/tmp/"+d, 0o755)
			}
			for _, opts := range []string{"lowerdir=" + dir + ":/tmp/empty", "lowerdir=" + dir + ",upperdir=/tmp/up,workdir=/tmp/wk"} {
				if unix.Mount("o", "/tmp/merged", "overlay", 0, opts) == nil {
					rel, _ := filepath.Rel(dir, p)
					got = append(got, look("/tmp/merged/"+rel)...)
					unix.Unmount("/tmp/merged", unix.MNT_DETACH)
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return got
}

func attackMountAPI(tg target) []string {
	var got []string
	for _, p := range tg.Paths {
		for dir := p; ; dir = filepath.Dir(dir) {
			for _, flags := range []uint{unix.OPEN_TREE_CLONE, unix.OPEN_TREE_CLONE | unix.AT_RECURSIVE} {
				fd, err := unix.OpenTree(unix.AT_FDCWD, dir, flags|unix.OPEN_TREE_CLOEXEC)
				if err != nil {
					continue
				}
				rel, _ := filepath.Rel(dir, p)
				got = append(got, look(fmt.Sprintf("/proc/self/fd/%d/%s", fd, rel))...)
				unix.Close(fd)
			}
			if dir == "/" {
				break
			}
		}
	}
	if fd, err := unix.Fsopen("ext4", 0); err == nil {
		unix.FsconfigSetString(fd, "source", tg.Device)
		if unix.FsconfigCreate(fd) == nil {
			got = append(got, "opened the disk's file system")
		}
		unix.Close(fd)
	}
	return got
}

func attackSetns(tg target) []string {
	var got []string
	for _, pid := range []string{"1", "self", strconv.Itoa(tg.HostPID), strconv.Itoa(os.Getppid())} {
		for _, ns := range []string{"mnt", "pid", "net", "ipc", "uts", "cgroup", "user"} {
			fd, err := unix.Open("/proc/"+pid+"/ns/"+ns, unix.O_RDONLY, 0)
			if err != nil {
				continue
			}
			if unix.Setns(fd, 0) == nil {
				got = append(got, "setns "+pid+" "+ns)
			}
			unix.Close(fd)
		}
	}
	for _, pid := range []int{1, tg.HostPID} {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if pid == tg.HostPID && pid != 1 && processIsHost(pid) {
			got = append(got, "a pidfd of a host process")
		}
		if unix.Setns(fd, unix.CLONE_NEWNS) == nil {
			got = append(got, "setns by pidfd")
		}
		for n := range 32 {
			if got2, err := unix.PidfdGetfd(fd, n, 0); err == nil {
				got = append(got, fmt.Sprintf("descriptor %d of %d", n, pid))
				unix.Close(got2)
			}
		}
	}
	return got
}

// processIsHost tells the host's sleeper from a process of the view that has the same number.
func processIsHost(pid int) bool {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return bytes.Contains(data, []byte("sleeper"))
}

func attackProcLinks(tg target) []string {
	var got []string
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		if pid, _ := strconv.Atoi(filepath.Base(p)); processIsHost(pid) {
			got = append(got, "sees a host process")
		}
		for _, l := range []string{"/root", "/cwd"} {
			for _, dir := range tg.Paths {
				got = append(got, look(p+l+dir)...)
				got = append(got, look(p+l+"/secret")...)
			}
		}
		for _, kind := range []string{"/fd", "/task/" + filepath.Base(p) + "/fd", "/map_files"} {
			fds, _ := os.ReadDir(p + kind)
			for _, fd := range fds {
				name := p + kind + "/" + fd.Name()
				if st, err := os.Stat(name); err == nil && st.IsDir() && !strings.HasPrefix(p, fmt.Sprintf("/proc/%d", os.Getpid())) {
					got = append(got, "directory "+name)
				}
				if target, err := os.Readlink(name); err == nil && strings.Contains(target, "/dev/fuse") {
					got = append(got, name)
				}
			}
		}
	}
	return got
}

func ask(network, address string) string {
	c, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	data, _ := io.ReadAll(c)
	return string(data)
}

func attackSockets(tg target) []string {
	var got []string
	for _, s := range tg.Sockets {
		for _, kind := range []string{"unix", "unixpacket"} {
			if strings.Contains(ask(kind, s), marker) {
				got = append(got, s)
			}
		}
		if strings.Contains(ask("unix", "/proc/1/root"+s), marker) {
			got = append(got, "/proc/1/root"+s)
		}
	}
	for _, s := range []string{"/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/run/systemd/private", "/var/run/docker.sock"} {
		if _, err := os.Lstat(s); err == nil {
			got = append(got, s)
		}
	}
	return got
}

func attackAbstract(tg target) []string {
	var got []string
	if tg.Abstract != "" && strings.Contains(ask("unix", tg.Abstract), marker) {
		got = append(got, "abstract socket")
	}
	// Its own it may use.
	l, err := net.Listen("unix", "@own-of-the-view")
	if err != nil {
		return append(got, "can't make an abstract socket: "+err.Error())
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			io.WriteString(c, "own")
			c.Close()
		}
	}()
	if ask("unix", "@own-of-the-view") != "own" {
		got = append(got, "can't use its own abstract socket")
	}
	return got
}

func attackPtrace(tg target) []string {
	var got []string
	for _, pid := range []int{1, tg.HostPID} {
		if pid != 1 && !processIsHost(pid) {
			if unix.Kill(pid, 0) == unix.ESRCH {
				continue
			}
		}
		if pid == os.Getpid() || pid == os.Getppid() && pid != 1 {
			continue
		}
		if unix.PtraceAttach(pid) == nil {
			got = append(got, fmt.Sprintf("traces %d", pid))
			unix.PtraceDetach(pid)
		}
		if unix.PtraceSeize(pid) == nil {
			got = append(got, fmt.Sprintf("seized %d", pid))
		}
		if f, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0); err == nil {
			got = append(got, fmt.Sprintf("memory of %d", pid))
			f.Close()
		}
		buf := make([]byte, 8)
		local := []unix.Iovec{{Base: &buf[0], Len: 8}}
		if _, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0); err == nil {
			got = append(got, fmt.Sprintf("reads %d", pid))
		}
	}
	return got
}

// attackKernelWrites opens for writing what would change the machine. It never writes.
func attackKernelWrites(target) []string {
	var got []string
	files := []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/sys/fs/binfmt_misc/register",
		"/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled", "/proc/irq/default_smp_affinity",
		"/sys/power/state", "/sys/module/kernel/parameters/panic", "/sys/class/net/lo/mtu",
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/release_agent", "/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/*/cgroup.procs", "/sys/fs/cgroup/cgroup.procs",
		"/sys/fs/cgroup/*/memory.limit_in_bytes", "/sys/fs/cgroup/*/notify_on_release", "/sys/fs/cgroup/memory.max", "/sys/block/*/queue/scheduler", "/sys/block/*/uevent",
		"/proc/sys/net/ipv4/*", "/proc/sys/kernel/*", "/proc/sys/user/*"} {
		more, _ := filepath.Glob(pattern)
		files = append(files, more...)
	}
	for _, p := range files {
		st, err := os.Stat(p)
		if err != nil || !st.Mode().IsRegular() {
			continue
		}
		if f, err := os.OpenFile(p, os.O_WRONLY, 0); err == nil {
			got = append(got, "may write "+p)
			f.Close()
		}
	}
	return got
}

func attackKernelReads(target) []string {
	var got []string
	for _, p := range []string{"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kmsg", "/proc/timer_list", "/proc/sched_debug", "/proc/kallsyms", "/proc/vmallocinfo",
		"/sys/firmware/acpi/tables/DSDT", "/sys/kernel/debug/sched/debug", "/proc/1/environ", "/proc/1/mem", "/proc/1/auxv", "/proc/1/maps", "/proc/1/stack", "/proc/1/syscall", "/proc/1/pagemap"} {
		f, err := os.Open(p)
		if err != nil {
			continue
		}
		buf := make([]byte, 16)
		if n, _ := f.Read(buf); n > 0 {
			got = append(got, "reads "+p)
		}
		f.Close()
	}
	return got
}

func attackHandles(tg target) []string {
	var got []string
	for _, h := range tg.Handles {
		raw, err := hex.DecodeString(h)
		if err != nil {
			continue
		}
		handle := unix.NewFileHandle(tg.HandleTyp, raw)
		for _, at := range []string{"/", "/usr", "/etc", "/var/lib", "/root", "/workspace", "/run"} {
			mnt, err := unix.Open(at, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			if err != nil {
				continue
			}
			for _, flags := range []int{unix.O_RDONLY, unix.O_RDONLY | unix.O_DIRECTORY, unix.O_PATH} {
				if fd, err := unix.OpenByHandleAt(mnt, handle, flags); err == nil {
					got = append(got, "opened a handle at "+at)
					got = append(got, look(fmt.Sprintf("/proc/self/fd/%d/", fd))...)
					unix.Close(fd)
				}
			}
			unix.Close(mnt)
		}
	}
	return got
}

func attackDescriptors(target) []string {
	var got []string
	for fd := 3; fd < 4096; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 { // this process's own are all close-on-exec
			continue
		}
		name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		got = append(got, fmt.Sprintf("inherited %d: %s", fd, name))
	}
	cwd, err := os.Getwd()
	if err != nil || strings.HasPrefix(cwd, "(unreachable)") {
		got = append(got, "working directory outside: "+cwd)
	}
	return got
}

func attackPropagation(tg target) []string {
	if tg.Late == "" {
		return nil
	}
	os.WriteFile("/workspace/ready", nil, 0o644)
	for range 200 {
		if _, err := os.Stat("/workspace/mounted"); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	got := look(tg.Late)
	mounts, _ := readMounts()
	data, _ := os.ReadFile("/proc/self/mountinfo")
	for _, l := range strings.Split(string(data), "\n") {
		if strings.Contains(l, " shared:") || strings.Contains(l, " master:") {
			got = append(got, "propagation: "+l)
		}
	}
	if len(mounts) == 0 {
		got = append(got, "no mountinfo")
	}
	return got
}

func attackKeyring(tg target) []string {
	var got []string
	for _, ring := range []int{unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING} {
		id, err := unix.KeyctlSearch(ring, "user", tg.Key, 0)
		if err != nil {
			continue
		}
		buf := make([]byte, 256)
		n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, buf, 0)
		if err == nil && bytes.Contains(buf[:min(n, len(buf))], []byte(marker)) {
			got = append(got, "key of the host")
		}
	}
	return got
}

func attackKernelLog(target) []string {
	buf := make([]byte, 4096)
	if n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf); err == nil && n > 0 {
		return []string{"kernel log"}
	}
	if _, err := unix.Klogctl(10 /* SYSLOG_ACTION_SIZE_BUFFER */, nil); err == nil {
		return []string{"kernel log's size"}
	}
	return nil
}

func attackVsock(target) []string {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.Close(fd)
		return []string{"vsock"}
	}
	return nil
}

// attackChroot is the old way out of a chroot: a descriptor outside of it.
func attackChroot(tg target) []string {
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	os.Mkdir("/tmp/jail", 0o755)
	if unix.Chroot("/tmp/jail") != nil {
		return nil
	}
	unix.Fchdir(fd)
	for range 64 {
		unix.Chdir("..")
	}
	if unix.Chroot(".") != nil {
		return nil
	}
	got := lookAll(tg, "")
	if _, err := os.Lstat("/.blank"); err == nil {
		got = append(got, "blank")
	}
	return got
}

func attackInit(target) []string {
	var got []string
	for _, sig := range []unix.Signal{unix.SIGKILL, unix.SIGSTOP, unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGABRT, unix.SIGUSR1, unix.SIGQUIT, unix.SIGSEGV} {
		unix.Kill(1, sig)
		time.Sleep(5 * time.Millisecond)
	}
	data, err := os.ReadFile("/proc/1/status")
	if err != nil || bytes.Contains(data, []byte("State:\tT")) {
		got = append(got, "stopped init")
	}
	fds, _ := os.ReadDir("/proc/1/fd") // root may count them
	for _, f := range fds {
		if _, err := os.Stat("/proc/1/fd/" + f.Name()); err == nil {
			got = append(got, "init's descriptor "+f.Name())
		}
	}
	cmdline, _ := os.ReadFile("/proc/1/cmdline")
	if string(bytes.TrimRight(cmdline, "\x00")) != initArg {
		got = append(got, "init's arguments: "+string(cmdline))
	}
	return got
}

// attackExecutable tries to write to the host's binary that became init (CVE-2019-5736).
func attackExecutable(tg target) []string {
	var got []string
	for _, p := range []string{"/proc/1/exe", "/proc/self/exe"} {
		if f, err := os.OpenFile(p, os.O_WRONLY, 0); err == nil {
			got = append(got, "may write "+p)
			f.Close()
		} else if !errors.Is(err, unix.ETXTBSY) && !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOENT) {
			got = append(got, p+": "+err.Error())
		}
	}
	if _, err := os.Stat("/proc/1/exe"); err == nil {
		got = append(got, "follows /proc/1/exe")
	}
	return got
}

func attackIPC(target) []string {
	var got []string
	for _, key := range []int{0x71e5} {
		if id, _, errno := unix.Syscall(unix.SYS_SHMGET, uintptr(key), 0, 0); errno == 0 {
			got = append(got, fmt.Sprintf("shared memory %d", id))
		}
	}
	return append(got, look("/dev/shm")...)
}

func attackHostSignal(tg target) []string {
	if processIsHost(tg.HostPID) {
		return []string{"may see a host process"}
	}
	return nil
}

// attackLimits looks for a way to lift its own limits.
func attackLimits(target) []string {
	var got []string
	os.Mkdir("/tmp/cg", 0o755)
	for _, m := range []struct{ fstype, data string }{{"cgroup2", ""}, {"cgroup", "memory"}, {"cgroup", "pids"}, {"cgroup", "cpu"}, {"cgroup", "freezer"}, {"cgroup", "devices"}} {
		if unix.Mount("c", "/tmp/cg", m.fstype, 0, m.data) != nil {
			continue
		}
		filepath.WalkDir("/tmp/cg", func(p string, d os.DirEntry, err error) error {
			switch filepath.Base(p) {
			case "memory.max", "memory.limit_in_bytes", "pids.max", "cpu.max", "release_agent", "devices.allow":
				data, _ := os.ReadFile(p)
				// The limits are one directory up; the payload's own files say "unlimited".
				if v := string(bytes.TrimSpace(data)); filepath.Base(p) != "release_agent" && v != fmt.Sprint(testMemory) && v != fmt.Sprint(testPids+initThreads) {
					return nil
				}
				if f, err := os.OpenFile(p, os.O_WRONLY, 0); err == nil && d.Type().IsRegular() {
					got = append(got, fmt.Sprintf("may write %s %s (%s)", m.data, p, bytes.TrimSpace(data)))
					f.Close()
				}
			}
			return nil
		})
		unix.Unmount("/tmp/cg", unix.MNT_DETACH)
	}
	return got
}

// attackSetuid looks for more capabilities than were given by executing what has them.
func attackSetuid(target) []string {
	var got []string
	data, _ := os.ReadFile("/proc/self/status")
	for _, l := range strings.Split(string(data), "\n") {
		f := strings.Fields(l)
		if len(f) == 2 && strings.HasPrefix(f[0], "Cap") {
			caps, _ := strconv.ParseUint(f[1], 16, 64)
			for _, c := range []uint{unix.CAP_SYS_ADMIN, unix.CAP_MKNOD, unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_PTRACE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_MODULE, unix.CAP_NET_ADMIN, unix.CAP_BPF, unix.CAP_SYS_BOOT} {
				if caps&(1<<c) != 0 {
					got = append(got, fmt.Sprintf("%s has capability %d", f[0], c))
				}
			}
		}
	}
	return got
}

// attackInject types into the terminal that it may have as standard input, and takes it over.
func attackInject(target) []string {
	var got []string
	key := byte('x')
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&key))); errno == 0 {
		got = append(got, "typed into the terminal")
	}
	if unix.IoctlSetInt(0, unix.TIOCSCTTY, 1) == nil {
		got = append(got, "stole the terminal")
	}
	return got
}
