package overlay

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// One file, LAYERS/lock, excludes two servers of one fork: a server holds an open-file-description lock on the one
// byte that stands for the fork. A file per fork would cost an inode per fork that nobody has written to yet, and a
// layer's journal doesn't exist before its first write.

type lockFile struct {
	f    *os.File
	refs int
	held map[int64]int // bytes locked by this process: -1 exclusive, else the number of shared holders
}

var lockFiles = struct {
	mu sync.Mutex
	m  map[string]*lockFile
}{m: make(map[string]*lockFile)}

// forkLock is a held lock.
type forkLock struct {
	path   string
	pos    int64
	shared bool
}

// lockPos is the byte of a fork: 62 bits of its id's digest.
func lockPos(fork string) int64 {
	d := sha256.Sum256([]byte(fork))
	return int64(binary.LittleEndian.Uint64(d[:8]) &^ (3 << 62))
}

// lockFork takes the lock on a fork. A holder that is just going away (a command that reads, a server that
// dies) is waited for, up to two seconds.
func lockFork(layersDir, fork string, shared bool) (*forkLock, error) {
	for wait := time.Millisecond; ; wait *= 2 {
		l, err := tryLockFork(layersDir, fork, shared)
		served, ok := err.(*ServedError)
		if !ok || served.PID == os.Getpid() {
			return l, err
		}
		if wait > time.Second {
			served.PID = lockHolder(filepath.Join(layersDir, "lock"), lockPos(fork))
			return nil, served
		}
		time.Sleep(wait)
	}
}

// Hold keeps servers away from a fork without opening it, so that also one that can't be opened can be removed. A fork
// that is served gives a *ServedError.
func Hold(layersDir, fork string) (release func(), err error) {
	l, err := lockFork(layersDir, fork, false)
	if err != nil {
		return nil, err
	}
	return l.unlock, nil
}

func tryLockFork(layersDir, fork string, shared bool) (*forkLock, error) {
	path := filepath.Join(layersDir, "lock")
	pos := lockPos(fork)
	lockFiles.mu.Lock()
	defer lockFiles.mu.Unlock()
	lf := lockFiles.m[path]
	if lf == nil {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, fmt.Errorf("locking fork %s: %w", fork, err)
		}
		lf = &lockFile{f: f, held: make(map[int64]int)}
		lockFiles.m[path] = lf
	}
	lf.refs++
	ok := false
	defer func() {
		if !ok {
			lf.unref(path)
		}
	}()
	// Locks of one description don't exclude each other, so this process keeps its own account.
	h := lf.held[pos]
	if h < 0 || h > 0 && !shared {
		return nil, &ServedError{Fork: fork, PID: os.Getpid()}
	}
	if h == 0 {
		lk := unix.Flock_t{Type: unix.F_WRLCK, Start: pos, Len: 1}
		if shared {
			lk.Type = unix.F_RDLCK
		}
		err := unix.FcntlFlock(lf.f.Fd(), unix.F_OFD_SETLK, &lk)
		if err == unix.EAGAIN || err == unix.EACCES {
			return nil, &ServedError{Fork: fork}
		}
		if err != nil {
			return nil, fmt.Errorf("locking fork %s: %w", fork, err)
		}
	}
	if shared {
		lf.held[pos] = h + 1
	} else {
		lf.held[pos] = -1
	}
	ok = true
	return &forkLock{path, pos, shared}, nil
}

// unref closes the file with its last lock. lockFiles.mu is held.
func (lf *lockFile) unref(path string) {
	if lf.refs--; lf.refs == 0 {
		lf.f.Close()
		delete(lockFiles.m, path)
	}
}

func (l *forkLock) unlock() {
	if l == nil {
		return
	}
	lockFiles.mu.Lock()
	defer lockFiles.mu.Unlock()
	lf := lockFiles.m[l.path]
	if l.shared && lf.held[l.pos] > 1 {
		lf.held[l.pos]--
	} else {
		delete(lf.held, l.pos)
		lk := unix.Flock_t{Type: unix.F_UNLCK, Start: l.pos, Len: 1}
		unix.FcntlFlock(lf.f.Fd(), unix.F_OFD_SETLK, &lk) // closing the file would do it too
	}
	lf.unref(l.path)
}

// lockHolder finds the process that holds the byte at pos. The kernel gives no pid for these locks, but shows them
// in the holder's fdinfo. 0 if it can't be told.
func lockHolder(path string, pos int64) int {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	ino := st.Sys().(*syscall.Stat_t).Ino
	want := fmt.Sprintf(":%d %d %d", ino, pos, pos)
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		fds, err := os.ReadDir(p + "/fd")
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if to, err := os.Readlink(p + "/fd/" + fd.Name()); err != nil || filepath.Base(to) != "lock" {
				continue
			}
			info, err := os.ReadFile(p + "/fdinfo/" + fd.Name())
			if err == nil && strings.Contains(string(info), want) {
				pid, _ := strconv.Atoi(filepath.Base(p))
				return pid
			}
		}
	}
	return 0
}
