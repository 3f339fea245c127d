package durable

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// LockMode is how a lock is shared.
type LockMode int

const (
	Shared    LockMode = unix.LOCK_SH // with other Shared holders
	Exclusive LockMode = unix.LOCK_EX // with nobody
)

var errNotDir = unix.ENOTDIR

// LockedError says that somebody else holds a lock that was tried.
type LockedError struct {
	Path string
	PID  int // the holder; 0 if it can't be told (another pid namespace, or it has just let go)
}

func (e *LockedError) Error() string {
	if e.PID != 0 {
		return fmt.Sprintf("%s is locked by process %d", e.Path, e.PID)
	}
	return e.Path + " is locked by another process"
}

// FileLock is a held lock.
type FileLock struct{ f *os.File }

// Unlock lets go. The file stays: removing it would split later lockers between two files.
func (l *FileLock) Unlock() error { return l.f.Close() }

// Lock waits for the lock on path, which is made if it doesn't exist.
func Lock(path string, mode LockMode) (*FileLock, error) {
	return LockContext(context.Background(), path, mode)
}

// LockContext is Lock that gives up when ctx ends; the error then wraps ctx's and a *LockedError.
func LockContext(ctx context.Context, path string, mode LockMode) (*FileLock, error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	// flock can't be cancelled, so a lock with a context is tried again and again; one without simply waits.
	if ctx.Done() == nil {
		err = flock(f, int(mode))
	} else {
		err = pollLock(ctx, f, mode)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &FileLock{f}, nil
}

// TryLock takes the lock on path or returns a *LockedError at once.
func TryLock(path string, mode LockMode) (*FileLock, error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	if err := flock(f, int(mode)|unix.LOCK_NB); err != nil {
		err = lockedError(f, err)
		f.Close()
		return nil, err
	}
	return &FileLock{f}, nil
}

// TryLockFile locks a file that is open anyway, or returns a *LockedError at once. The lock ends when every
// descriptor of this open file (its duplicates, too) is closed.
func TryLockFile(f File, mode LockMode) error {
	if err := flockFd(int(f.Fd()), int(mode)|unix.LOCK_NB); err != nil {
		return lockedError(f, err)
	}
	return nil
}

func pollLock(ctx context.Context, f *os.File, mode LockMode) error {
	const first, most = time.Millisecond, 50 * time.Millisecond
	for wait := first; ; wait = min(2*wait, most) {
		err := flock(f, int(mode)|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		err = lockedError(f, err)
		var locked *LockedError
		if !errors.As(err, &locked) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", locked, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// openLock never shares an open file description with anybody, so that two locks in one process exclude each other.
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	}
	return f, err
}

func flock(f *os.File, how int) error {
	if err := flockFd(int(f.Fd()), how); err != nil {
		return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	return nil
}

func flockFd(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); err != unix.EINTR {
			return err
		}
	}
}

func lockedError(f interface {
	Name() string
	Stat() (fs.FileInfo, error)
}, err error) error {
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return err
	}
	locked := &LockedError{Path: f.Name()}
	if st, serr := f.Stat(); serr == nil {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			locked.PID = lockHolder(sys.Ino)
		}
	}
	return locked
}

// lockHolder looks an inode up in /proc/locks. Its device isn't compared: btrfs and overlayfs show others there than
// stat does. The answer only helps a person to find the process.
func lockHolder(ino uint64) int {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer f.Close()
	want := []byte(":" + strconv.FormatUint(ino, 10))
	for s := bufio.NewScanner(f); s.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 4711 fe:00:262146 0 EOF
		w := bytes.Fields(s.Bytes())
		if len(w) >= 6 && string(w[1]) == "FLOCK" && bytes.HasSuffix(w[5], want) {
			if pid, err := strconv.Atoi(string(w[4])); err == nil && pid > 0 {
				return pid
			}
		}
	}
	return 0
}
