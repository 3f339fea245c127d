package isolate

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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

func attackIPC(target) []string {
	var got []string
	for _, key := range []int{0x71e5} {
		if id, _, errno := unix.Syscall(unix.SYS_SHMGET, uintptr(key), 0, 0); errno == 0 {
			got = append(got, fmt.Sprintf("shared memory %d", id))
		}
	}
	return append(got, look("/dev/shm")...)
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
