// Package ackwriter makes random changes to a directory, one system call that changes something at a time, and logs
// each call before it is made and after it has returned. Another process keeps a mirror of what was acknowledged, so
// that after the death of a file server it can say exactly what must still be there: every operation that had
// returned, and of the one that was under way anything between nothing and all.
//
// The same Apply runs on both sides; the mirror's file system (ext4) is the oracle for results too.
package ackwriter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Op is one operation with everything that it needs to be repeated elsewhere.
type Op struct {
	Kind string `json:"k"`
	Path string `json:"p"`           // relative to the tree's root
	To   string `json:"t,omitempty"` // second path, or a symlink's target
	Name string `json:"x,omitempty"` // xattr
	Off  int64  `json:"o,omitempty"`
	Len  int64  `json:"l,omitempty"`
	Mode uint32 `json:"m,omitempty"` // permission bits, or flags of rename, fallocate, setxattr
	ID   uint32 `json:"u,omitempty"` // owner
	Seed uint64 `json:"s,omitempty"` // of the data
}

// Kinds are all operations, with their relative frequency.
var Kinds = map[string]int{
	"create": 10, "write": 20, "append": 14, "trunc-open": 2, "truncate": 6, "rename": 10, "unlink": 6, "mkdir": 5,
	"rmdir": 3, "symlink": 3, "link": 5, "mkfifo": 1, "chmod": 5, "chown": 3, "utimes": 3, "setxattr": 4,
	"rmxattr": 2, "fallocate": 4, "copy-range": 4, "mmap": 6, "tmpfile-link": 3, "fsync": 3,
}

// Bytes is the data that an operation with this seed writes.
func Bytes(seed uint64, n int64) []byte {
	r := rand.NewPCG(seed, 0x9e3779b97f4a7c15)
	b := make([]byte, n+7)
	for i := int64(0); i < n; i += 8 {
		v := r.Uint64()
		for j := int64(0); j < 8 && i+j < n; j++ {
			b[i+j] = byte(v >> (8 * j))
		}
	}
	return b[:n]
}

// Apply does op in the tree whose root directory is the descriptor root. Apart from opening and closing it makes one
// system call that has a visible effect. The error is a unix.Errno, or nil.
func Apply(root int, op Op) error {
	switch op.Kind {
	case "create":
		return closing(unix.Openat(root, op.Path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, op.Mode))
	case "trunc-open":
		return closing(unix.Openat(root, op.Path, unix.O_TRUNC|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0))
	case "rename":
		return unix.Renameat2(root, op.Path, root, op.To, uint(op.Mode))
	case "unlink":
		return unix.Unlinkat(root, op.Path, 0)
	case "rmdir":
		return unix.Unlinkat(root, op.Path, unix.AT_REMOVEDIR)
	case "mkdir":
		return unix.Mkdirat(root, op.Path, op.Mode)
	case "symlink":
		return unix.Symlinkat(op.To, root, op.Path)
	case "link":
		return unix.Linkat(root, op.Path, root, op.To, 0)
	case "mkfifo":
		return unix.Mknodat(root, op.Path, unix.S_IFIFO|op.Mode, 0)
	case "chown":
		return unix.Fchownat(root, op.Path, int(op.ID), int(op.ID), unix.AT_SYMLINK_NOFOLLOW)
	case "utimes":
		ts := unix.NsecToTimespec(int64(op.Seed))
		return unix.UtimesNanoAt(root, op.Path, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	case "tmpfile-link":
		return tmpfileLink(root, op)
	case "copy-range":
		return copyRange(root, op)
	}
	flags := unix.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	if op.Kind == "append" {
		flags |= unix.O_APPEND
	}
	return withFile(root, op.Path, flags, func(fd int) error { return applyFD(fd, op) })
}

func applyFD(fd int, op Op) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG && (op.Kind == "write" || op.Kind == "append") {
		return unix.EINVAL // bytes in a pipe are the kernel's, and so is the time of writing them
	}
	switch op.Kind {
	case "write":
		return whole(Bytes(op.Seed, op.Len), func(b []byte, at int64) (int, error) { return unix.Pwrite(fd, b, op.Off+at) })
	case "append":
		return whole(Bytes(op.Seed, op.Len), func(b []byte, _ int64) (int, error) { return unix.Write(fd, b) })
	case "truncate":
		return unix.Ftruncate(fd, op.Len)
	case "chmod":
		return unix.Fchmod(fd, op.Mode)
	case "setxattr":
		return unix.Fsetxattr(fd, op.Name, Bytes(op.Seed, op.Len), int(op.Mode))
	case "rmxattr":
		return unix.Fremovexattr(fd, op.Name)
	case "fallocate":
		return unix.Fallocate(fd, op.Mode, op.Off, op.Len)
	case "fsync":
		return unix.Fsync(fd)
	case "mmap":
		return mapped(fd, op)
	}
	return fmt.Errorf("unknown operation %q", op.Kind)
}

// mapped stores through a shared mapping and waits until the stores are written back.
func mapped(fd int, op Op) (err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if op.Off+op.Len > st.Size {
		return unix.EINVAL
	}
	m, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Munmap(m)) }()
	if err := store(m[op.Off:op.Off+op.Len], Bytes(op.Seed, op.Len)); err != nil {
		return err
	}
	return unix.Msync(m, unix.MS_SYNC)
}

// store copies; a page that the server can't give any more is a fault, reported as EIO.
func store(dst, src []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			err = unix.EIO
		}
	}()
	copy(dst, src)
	return nil
}

// tmpfileLink makes a whole file appear at once.
func tmpfileLink(root int, op Op) error {
	fd, err := unix.Openat(root, parent(op.Path), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, op.Mode)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	write := func(b []byte, _ int64) (int, error) { return unix.Write(fd, b) }
	if err := whole(Bytes(op.Seed, op.Len), write); err != nil {
		return err
	}
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), root, op.Path, unix.AT_SYMLINK_FOLLOW)
}

// copyRange copies op.Len bytes from the start of op.Path to op.Off in op.To.
func copyRange(root int, op Op) error {
	return withFile(root, op.Path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, func(in int) error {
		return withFile(root, op.To, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, func(out int) error {
			from, to := int64(0), op.Off
			_, err := unix.CopyFileRange(in, &from, out, &to, int(op.Len), 0)
			return err
		})
	})
}

// withFile opens a file for one use.
func withFile(root int, path string, flags int, do func(fd int) error) error {
	fd, err := unix.Openat(root, path, flags, 0)
	if err != nil {
		return err
	}
	return errors.Join(do(fd), unix.Close(fd))
}

func closing(fd int, err error) error {
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// whole writes all of b. A write over a page's end is two requests: one that is cut short by the server's death says
// why when the rest is written.
func whole(b []byte, write func(rest []byte, at int64) (int, error)) error {
	for at := 0; ; {
		n, err := write(b[at:], int64(at))
		if err != nil {
			return err
		}
		if at += n; at == len(b) {
			return nil
		}
		if n == 0 {
			return unix.ENOSPC
		}
	}
}

func parent(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[:i]
		}
	}
	return "."
}

// Errno is the number of an error of Apply: 0 for none.
func Errno(err error) unix.Errno {
	var e unix.Errno
	if err == nil {
		return 0
	}
	if errors.As(err, &e) {
		return e
	}
	return unix.EPROTO
}
