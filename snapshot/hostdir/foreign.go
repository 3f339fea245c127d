package hostdir

import "golang.org/x/sys/unix"

// kernelTypes are file systems that hold no files of anybody: reading them has no end or no meaning.
var kernelTypes = map[int64]string{
	unix.PROC_SUPER_MAGIC:         "proc",
	unix.SYSFS_MAGIC:              "sysfs",
	unix.CGROUP_SUPER_MAGIC:       "a cgroup hierarchy",
	unix.CGROUP2_SUPER_MAGIC:      "a cgroup hierarchy",
	unix.DEVPTS_SUPER_MAGIC:       "devpts",
	unix.DEBUGFS_MAGIC:            "debugfs",
	unix.TRACEFS_MAGIC:            "tracefs",
	unix.SECURITYFS_MAGIC:         "securityfs",
	unix.BPF_FS_MAGIC:             "bpf",
	unix.EFIVARFS_MAGIC:           "efivarfs",
	unix.NSFS_MAGIC:               "nsfs",
	unix.BINFMTFS_MAGIC:           "binfmt_misc",
	unix.SELINUX_MAGIC:            "selinuxfs",
	int64(0x65735543 /*fusectl*/): "fusectl",
}

// Foreign says what is mounted at the directory if it is nothing to import: one of the kernel's own file systems, or a
// mounted fork, whose server may be who asks. "" otherwise.
func (d *Dir) Foreign() (string, error) {
	var sfs unix.Statfs_t
	if err := unix.Fstatfs(d.fd(), &sfs); err != nil {
		return "", d.fail("statfs", "", err)
	}
	if what, ok := kernelTypes[int64(sfs.Type)]; ok {
		return "a file system of the kernel's (" + what + ")", nil
	}
	if int64(sfs.Type) != unix.FUSE_SUPER_MAGIC {
		return "", nil
	}
	st, err := d.Lstat("")
	if err != nil {
		return "", err
	}
	ours, err := forkDevice(st.Dev)
	if err != nil || !ours {
		return "", err
	}
	return "a mounted fork", nil
}
