package isolate

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// initExecutable returns a descriptor of this very binary that init is executed from. It lies on a read-only mount of its
// own (or in a sealed memory file), so that a program which gets at /proc/PID/exe of anything executed from it (a script
// whose interpreter is /proc/self/exe, say) can't write to the host's file.
func initExecutable() (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/proc/self/exe", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err == nil {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
		if err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err == nil {
			return os.NewFile(uintptr(fd), "self"), nil
		}
		unix.Close(fd)
	}
	return sealedCopy()
}

// sealedCopy is the fallback where the binary's mount can't be cloned (it is of another mount namespace).
func sealedCopy() (*os.File, error) {
	src, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer src.Close()
	fd, err := unix.MemfdCreate("tine", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	dst := os.NewFile(uintptr(fd), "self")
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return nil, err
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		dst.Close()
		return nil, err
	}
	return dst, nil
}
