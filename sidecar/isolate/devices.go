package isolate

import (
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// deviceNodes are all that a program gets, with the numbers the kernel gave them for ever.
var deviceNodes = []struct {
	name         string
	major, minor uint32
}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}}

// mountDev makes /dev: a handful of harmless nodes, terminals and shared memory of the view's own, no disk.
func (v *view) mountDev() error {
	if v.cfg.WritableHost {
		return nil
	}
	if err := v.mountNew("tmpfs", "/dev", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=64k"); err != nil {
		return err
	}
	dev := path.Join(v.top, "dev")
	for _, d := range deviceNodes {
		if err := v.deviceNode(dev, d.name, unix.Mkdev(d.major, d.minor)); err != nil {
			return fmt.Errorf("/dev/%s: %w", d.name, err)
		}
	}
	for _, l := range [][2]string{{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"}} {
		if err := os.Symlink(l[0], path.Join(dev, l[1])); err != nil {
			return err
		}
	}
	const flags = unix.MS_NOSUID | unix.MS_NOEXEC
	if err := v.mountNew("devpts", "/dev/pts", flags, "newinstance,ptmxmode=0666,mode=0620,gid=5"); err != nil {
		return err
	}
	if err := v.mountNew("tmpfs", "/dev/shm", flags|unix.MS_NODEV, "mode=1777"); err != nil {
		return err
	}
	if err := v.mountNew("mqueue", "/dev/mqueue", flags|unix.MS_NODEV, ""); err != nil {
		v.report.Notes = append(v.report.Notes, "no /dev/mqueue: "+err.Error())
	}
	return nil
}

// deviceNode makes a node, or binds the host's where making one is forbidden.
func (v *view) deviceNode(dev, name string, number uint64) error {
	err := unix.Mknod(path.Join(dev, name), unix.S_IFCHR|0o666, int(number))
	if err == nil || err != unix.EPERM {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat("/dev/"+name, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != number {
		return fmt.Errorf("the host's /dev/%s is another device", name)
	}
	at, err := v.point("/dev/"+name, true)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	fd, err := openTree(unix.AT_FDCWD, "/dev/"+name, false)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return attach(fd, at, "")
}

// mountPrivate gives the view directories for what doesn't outlive it.
func (v *view) mountPrivate() error {
	if v.cfg.WritableHost {
		return nil
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if err := v.mountNew("tmpfs", "/run", flags, "mode=755"); err != nil {
		return err
	}
	for name, mode := range map[string]uint32{"lock": 0o1777, "tine": 0o755} {
		if err := os.Mkdir(path.Join(v.top, "run", name), os.FileMode(mode&0o777)); err != nil {
			return err
		}
		if err := unix.Chmod(path.Join(v.top, "run", name), mode); err != nil {
			return err
		}
	}
	if err := v.mountNew("tmpfs", "/tmp", flags, "mode=1777"); err != nil {
		return err
	}
	for _, p := range []string{"/var/tmp", "/var/run", "/var/lock"} { // mostly symlinks on today's systems, but for the first
		var st unix.Stat_t
		if unix.Lstat(path.Join(v.top, p), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		mode := "mode=1777"
		if p == "/var/run" {
			mode = "mode=755"
		}
		if err := v.mountNew("tmpfs", p, flags, mode); err != nil {
			return err
		}
	}
	return v.nameServers()
}

// nameServers keeps /etc/resolv.conf readable where it is a link into the host's /run.
func (v *view) nameServers() error {
	const file = "/etc/resolv.conf"
	real, err := realFile(file)
	if err != nil || !within(real, "/run") && !within(real, "/var/run") {
		return nil
	}
	data, err := os.ReadFile(real)
	if err != nil || len(data) > 64<<10 {
		return nil
	}
	dst := path.Join(v.top, real)
	if err := os.MkdirAll(path.Dir(dst), 0o755); err != nil {
		return err
	}
	return create(dst, data, 0o644)
}
