package fs

import (
	"context"
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tine/overlay"
	"tine/snapshot/content"
	"tine/snapshot/image"
)

// errno is the one place where errors become numbers. The order matters: a missing content is EIO whatever the
// number in its cause.
func errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if n, ok := err.(syscall.Errno); ok {
		return known(n)
	}
	switch {
	case unreadable(err):
		return unix.EIO
	case errors.Is(err, image.ErrNotExist):
		return unix.ENOENT
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unix.EINTR
	}
	return known(overlay.Errno(err))
}

// unreadable reports whether a content can't be had.
func unreadable(err error) bool {
	var (
		missing *content.MissingError
		corrupt *content.CorruptError
	)
	return errors.As(err, &missing) || errors.As(err, &corrupt)
}

// known replaces the numbers that mean something else to the kernel: ENOSYS switches an operation off for the
// mount's life, and those above 511 are the kernel's own.
func known(n syscall.Errno) syscall.Errno {
	switch {
	case n == unix.ENOSYS:
		return unix.EOPNOTSUPP
	case n > 511:
		return unix.EIO
	}
	return n
}

// status is errno for a handler: what the caller can't be told is logged.
func (f *face) status(op string, ino uint64, err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	n := errno(err)
	if _, plain := err.(syscall.Errno); !plain && n == unix.EIO {
		if op == "read" || unreadable(err) {
			f.complaints.unreadable(ino)
		}
		if ok, dropped := f.complaints.next(); ok {
			f.log.Error("fuse: I/O error", "fork", f.fork.ID(), "op", op, "inode", ino, "err", err, "not_shown", dropped)
		}
	}
	return fuse.Status(n)
}
