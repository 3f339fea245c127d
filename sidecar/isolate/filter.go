package isolate

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The filter refuses system calls that a view must not have. It is a list of what is denied, not of what is allowed:
// capabilities and mounts are the wall, this closes what they leave open (each shown by a test in escape_test.go):
//
//   - a new user namespace would have all capabilities within itself: it may mount control groups writable, and reaches
//     kernel code that is otherwise root's only;
//   - keyrings and the kernel's log belong to no namespace;
//   - vsock leads to the machine's hypervisor whatever the network namespace.
//
// The rest is what Docker's default profile denies to a program without SYS_ADMIN and the like, for depth.

// mainCalls are denied under the processor's own calling convention; archCalls in filter_ARCH.go adds to them.
var mainCalls = []uint32{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_CLOCK_SETTIME, unix.SYS_DELETE_MODULE, unix.SYS_FANOTIFY_INIT, unix.SYS_FINIT_MODULE,
	unix.SYS_INIT_MODULE, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_KEYCTL, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT, unix.SYS_NFSSERVCTL,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_PERF_EVENT_OPEN, unix.SYS_PIVOT_ROOT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_REBOOT, unix.SYS_REQUEST_KEY, unix.SYS_SETNS,
	unix.SYS_SETTIMEOFDAY, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SYSLOG, unix.SYS_UMOUNT2, unix.SYS_USERFAULTFD, unix.SYS_VHANGUP,
}

// newestCall is the last one that was known when mainCalls was written: what a later kernel adds doesn't exist here.
const newestCall = unix.SYS_RSEQ_SLICE_YIELD

// Offsets in struct seccomp_data. All supported processors are little endian: an argument's low word comes first.
const (
	dataNumber = 0
	dataArch   = 4
	dataArg0   = 16
)

const (
	retAllow  = unix.SECCOMP_RET_ALLOW
	retDenied = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	// What doesn't exist makes libraries fall back: from clone3, whose flags a filter can't see, to clone.
	retAbsent   = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	retNoFamily = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
)

// convention is one way to make system calls.
type convention struct {
	arch                           uint32
	denied, absent                 []uint32
	clone, unshare, socket, newest uint32
}

// assembler builds a classic BPF program. Every branch jumps over a handful of instructions only.
type assembler []unix.SockFilter

func (a *assembler) emit(code uint16, jt, jf uint8, k uint32) {
	*a = append(*a, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
}

func (a *assembler) load(offset uint32) { a.emit(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, offset) }
func (a *assembler) ret(v uint32)       { a.emit(unix.BPF_RET|unix.BPF_K, 0, 0, v) }

// on returns v when the accumulator is n.
func (a *assembler) on(n, v uint32) {
	a.emit(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 1, n)
	a.ret(v)
}

// filterProgram is the whole filter.
func filterProgram(conventions []convention) []unix.SockFilter {
	var a assembler
	a.load(dataArch)
	for _, c := range conventions {
		body := c.body()
		// Longer than a conditional jump reaches: skip by an unconditional one.
		a.emit(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, 0, c.arch)
		a.emit(unix.BPF_JMP|unix.BPF_JA, 0, 0, uint32(len(body)))
		a = append(a, body...)
	}
	a.ret(retAbsent)
	return a
}

func (c convention) body() assembler {
	var a assembler
	a.load(dataNumber)
	// Numbers above include x32's, which have a high bit set.
	a.emit(unix.BPF_JMP|unix.BPF_JGT|unix.BPF_K, 0, 1, c.newest)
	a.ret(retAbsent)
	for _, n := range c.denied {
		a.on(n, retDenied)
	}
	for _, n := range c.absent {
		a.on(n, retAbsent)
	}
	for _, n := range []uint32{c.clone, c.unshare} {
		a.emit(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 4, n)
		a.load(dataArg0)
		a.emit(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, 0, 1, unix.CLONE_NEWUSER)
		a.ret(retDenied)
		a.ret(retAllow)
	}
	a.emit(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 3, c.socket)
	a.load(dataArg0)
	a.on(unix.AF_VSOCK, retNoFamily)
	a.ret(retAllow)
	return a
}

// installFilter puts the calling thread, and what it will execute, under the filter.
func installFilter() error {
	if len(conventions) == 0 {
		return &UnsupportedError{What: "isolation", Reason: "no system call filter for this processor"}
	}
	prog := filterProgram(conventions)
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog)))
	switch {
	case errno == 0:
		return nil
	case errors.Is(errno, unix.ENOSYS), errors.Is(errno, unix.EINVAL):
		return &UnsupportedError{What: "isolation", Reason: "the kernel has no seccomp filters (" + errno.Error() + ")"}
	}
	return fmt.Errorf("seccomp: %w", errno)
}
