package fs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// outsiders use this process's own mounts on its behalf: for the first probe, and for syncfs.
//
// A thread that waits for an answer of its own process can't be killed while it waits, and the descriptors that it
// shares with the other threads stay open with it: after kill -9 nobody would answer, /dev/fuse would never be
// closed, so that the mount would hang instead of failing, and the locks on the fork would be held for ever. An
// outsider is a thread with a descriptor table of its own, in which there is only what it was handed. With the others
// dead, /dev/fuse is closed, the kernel fails the request, and the outsider dies too.
type outsiders struct {
	mu     sync.Mutex
	idle   []int // our ends of their sockets
	closed bool
}

// maxIdleOutsiders threads are kept for the next call.
const maxIdleOutsiders = 4

// What an outsider does; the first byte of an order. The rest of it is a path, relative to the descriptor that comes
// with it, or from the working directory if none does.
const (
	doProbe = 'p' // open the root, and open, poll and close the path
	doSync  = 's' // syncfs of the directory at the path
)

// do has an outsider do what with path below root (-1: none). The error is the failed step's.
func (o *outsiders) do(what byte, root int, path string) error {
	sock, err := o.take()
	if err != nil {
		return err
	}
	var rights []byte
	if root >= 0 {
		rights = unix.UnixRights(root)
	}
	if err := unix.Sendmsg(sock, append([]byte{what}, path...), rights, nil, 0); err != nil {
		unix.Close(sock)
		return fmt.Errorf("fuse: outsider: %w", err)
	}
	var answer [64]byte
	n := 0
	for {
		n, err = unix.Read(sock, answer[:])
		if err != unix.EINTR {
			break
		}
	}
	if err != nil || n < 4 {
		unix.Close(sock)
		return fmt.Errorf("fuse: outsider: %d bytes: %w", n, err)
	}
	o.give(sock)
	if errno := unix.Errno(binary.NativeEndian.Uint32(answer[:])); errno != 0 {
		return fmt.Errorf("fuse: %s: %w", answer[4:n], errno)
	}
	return nil
}

func (o *outsiders) take() (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.idle); n > 0 {
		sock := o.idle[n-1]
		o.idle = o.idle[:n-1]
		return sock, nil
	}
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("fuse: outsider: %w", err)
	}
	started := make(chan error)
	go outside(p[1], started)
	err = <-started
	unix.Close(p[1]) // in our table; the outsider has its own
	if err != nil {
		unix.Close(p[0])
		return -1, fmt.Errorf("fuse: outsider: %w", err)
	}
	return p[0], nil
}

// outside makes its thread an outsider.
func outside(sock int, started chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// /proc/self/fd is the first thread's table. It is kept busy until another one has taken the work.
		done := make(chan error)
		go outside(sock, done)
		started <- <-done
		runtime.UnlockOSThread()
		return
	}
	err := withdraw(sock)
	started <- err
	if err == nil {
		serveOutside(sock)
	}
	// Still locked: the thread ends with its goroutine.
}

func (o *outsiders) give(sock int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.idle) >= maxIdleOutsiders {
		unix.Close(sock) // its thread reads the end and goes
		return
	}
	o.idle = append(o.idle, sock)
}

func (o *outsiders) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for _, sock := range o.idle {
		unix.Close(sock)
	}
	o.idle = nil
}

// withdraw gives the calling thread a descriptor table that has only keep.
func withdraw(keep int) error {
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		return err
	}
	if keep > 0 {
		if err := unix.CloseRange(0, uint(keep-1), 0); err != nil {
			return err
		}
	}
	return unix.CloseRange(uint(keep+1), math.MaxUint32, 0)
}

// serveOutside takes orders until the other end is closed. Nothing here may use the runtime's poller or standard
// error, which this thread doesn't have.
func serveOutside(sock int) {
	var order [1 + unix.PathMax]byte
	oob := make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, _, _, err := unix.Recvmsg(sock, order[:], oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n < 1 {
			unix.Close(sock)
			return
		}
		root := received(oob[:oobn])
		step, err := obey(order[0], root, string(order[1:n]))
		if root >= 0 {
			unix.Close(root)
		}
		errno, _ := err.(unix.Errno)
		answer := binary.NativeEndian.AppendUint32(nil, uint32(errno))
		if unix.Sendto(sock, append(answer, step...), unix.MSG_NOSIGNAL, nil) != nil {
			unix.Close(sock)
			return
		}
	}
}

// received is the descriptor in a control message, or AT_FDCWD.
func received(oob []byte) int {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(list) != 1 {
		return unix.AT_FDCWD
	}
	fds, err := unix.ParseUnixRights(&list[0])
	if err != nil || len(fds) != 1 {
		return unix.AT_FDCWD
	}
	return fds[0]
}

// obey does one order and names the step that failed.
func obey(what byte, root int, path string) (step string, err error) {
	const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	switch what {
	case doProbe:
		dir, err := unix.Openat(root, ".", dirFlags, 0)
		if err != nil {
			return "probe of the root", err
		}
		defer unix.Close(dir)
		fd, err := unix.Openat(root, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return "probe", err
		}
		// A Go program that opens one of these files polls it while it holds a processor. In the serving process that
		// can be the processor that would answer.
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); err != nil && err != unix.EINTR {
			unix.Close(fd)
			return "probe: poll", err
		}
		return "probe: close", unix.Close(fd)
	case doSync:
		dir, err := unix.Openat(root, path, dirFlags, 0)
		if err != nil {
			return "syncfs: open", err
		}
		defer unix.Close(dir)
		return "syncfs", unix.Syncfs(dir)
	}
	return string(bytes.Clone([]byte{what})), unix.EINVAL
}
