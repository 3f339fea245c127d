package isolate

import (
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maskedPaths show the state of the whole machine, or of its memory; the list is Docker's.
var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
	"/proc/timer_list", "/proc/timer_stats", "/proc/kallsyms", "/proc/kmsg", "/proc/vmallocinfo", "/proc/key-users",
	"/sys/firmware", "/sys/devices/virtual/powercap", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/fs/fuse", "/sys/fs/bpf",
}

// readOnlyPaths are where root could change the machine without any capability.
var readOnlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// mountProc mounts the view's own /proc: of its pid namespace, without what shows or changes the machine. In a new user
// namespace the kernel refuses a fresh one because this one is partly covered.
func (v *view) mountProc() error {
	if err := v.mountNew("proc", "/proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	for _, p := range readOnlyPaths {
		if err := v.freeze(p); err != nil {
			return err
		}
	}
	return v.mask("/proc/")
}

// mask covers the masked paths below prefix. "/proc" itself can be without some of them.
func (v *view) mask(prefix string) error {
	for _, p := range maskedPaths {
		if !strings.HasPrefix(p, prefix) {
			continue
		}
		if _, err := v.cover(p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}

// freeze makes a file or directory of a mount read-only by a bind mount on itself.
func (v *view) freeze(p string) error {
	at, err := v.open(p)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(at)
	fd, err := openTree(at, "", false)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := restrict(fd, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC); err != nil {
		return err
	}
	return attach(fd, at, "")
}

// mountSys mounts a read-only /sys of the view's network namespace, with the run's own control groups.
func (v *view) mountSys() error {
	if v.cfg.WritableHost {
		return nil
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RDONLY
	if err := v.mountNew("sysfs", "/sys", flags, ""); err != nil {
		return err
	}
	if err := v.mask("/sys/"); err != nil {
		return err
	}
	if fd, err := v.open("/sys/fs/cgroup"); err != nil {
		return nil // a kernel without control groups
	} else {
		unix.Close(fd)
	}
	if v.cfg.V2 && len(v.cfg.V1) == 0 {
		return v.mountNew("cgroup2", "/sys/fs/cgroup", flags, "")
	}
	if len(v.cfg.V1) == 0 {
		return nil
	}
	if err := v.mountNew("tmpfs", "/sys/fs/cgroup", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=64k"); err != nil {
		return err
	}
	done := map[string]bool{}
	for _, c := range v.cfg.V1 {
		opts := coMounted(c)
		if done[opts] {
			continue
		}
		done[opts] = true
		if err := v.mountNew("cgroup", "/sys/fs/cgroup/"+opts, flags, opts); err != nil {
			return err
		}
		for _, alias := range strings.Split(opts, ",") {
			if alias != opts {
				os.Symlink(opts, path.Join(v.top, "sys/fs/cgroup", alias))
			}
		}
	}
	if v.cfg.V2 {
		if err := v.mountNew("cgroup2", "/sys/fs/cgroup/unified", flags, ""); err != nil {
			return err
		}
	}
	top, err := v.open("/sys/fs/cgroup")
	if err != nil {
		return err
	}
	defer unix.Close(top)
	return restrict(top, unix.MOUNT_ATTR_RDONLY)
}

// coMounted returns the controllers of a v1 hierarchy as they must be named to mount it ("cpu,cpuacct").
func coMounted(controller string) string {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return controller
	}
	for _, line := range strings.Split(string(data), "\n") {
		if f := strings.SplitN(line, ":", 3); len(f) == 3 && contains(strings.Split(f[1], ","), controller) {
			return f[1]
		}
	}
	return controller
}
