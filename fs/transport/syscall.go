package transport

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reads and replies don't block (the descriptor is O_NONBLOCK; a reply only copies), so that they skip the
// scheduler's bookkeeping of blocking calls.

func rawRead(fd int, p []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return int(n), e
}

func rawWrite(fd int, p []byte) unix.Errno {
	for {
		_, _, e := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		if e != unix.EINTR {
			return e
		}
	}
}
