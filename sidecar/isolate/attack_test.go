package isolate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
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
		os.Remove("/tmp/link")
		if err := os.Rename(p, p+".moved"); err == nil {
			got = append(got, "renamed "+p)
		}
		if err := os.WriteFile(filepath.Join(p, "planted"), nil, 0o644); err == nil {
			got = append(got, "wrote into "+p)
		}
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

func attackHostSignal(tg target) []string {
	if processIsHost(tg.HostPID) {
		return []string{"may see a host process"}
	}
	return nil
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
