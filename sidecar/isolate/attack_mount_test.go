package isolate

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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
	defer os.Remove("/tmp/m") // also run on the open host
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
		defer os.Remove("/tmp/m") // also run on the open host
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
