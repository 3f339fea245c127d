package fs

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// fusectl is the control file system, found without a mount point: it may not be mounted on a host, and the host's
// own mount is none of our business.
var fusectl = sync.OnceValues(func() (int, error) {
	ctx, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if err == nil {
		defer unix.Close(ctx)
		if err = unix.FsconfigCreate(ctx); err == nil {
			var fd int
			if fd, err = unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, 0); err == nil {
				return fd, nil
			}
		}
	}
	fd, err2 := unix.Open("/sys/fs/fuse/connections", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err2 != nil {
		return -1, fmt.Errorf("fusectl: %w", err)
	}
	return fd, nil
})

// Waiting is the number of requests of a connection that have no answer yet, those that nobody has read included.
func Waiting(minor uint32) (int, error) {
	fd, err := openControl(minor, "waiting", unix.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var b [32]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return 0, fmt.Errorf("fusectl: %w", err)
	}
	v, err := strconv.Atoi(string(bytes.TrimSpace(b[:n])))
	if err != nil {
		return 0, fmt.Errorf("fusectl: %w", err)
	}
	return v, nil
}

// Abort ends a connection: every request that waits, and every later one, is ENOTCONN.
func Abort(minor uint32) error {
	fd, err := openControl(minor, "abort", unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("1")); err != nil {
		return fmt.Errorf("fusectl: %w", err)
	}
	return nil
}

func openControl(minor uint32, name string, flags int) (int, error) {
	root, err := fusectl()
	if err != nil {
		return -1, err
	}
	path := strconv.FormatUint(uint64(minor), 10) + "/" + name
	fd, err := unix.Openat(root, path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("fusectl: connection %d: %w", minor, err)
	}
	return fd, nil
}
