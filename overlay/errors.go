package overlay

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// What POSIX has a number for is returned as that number (unix.ENOENT, …), without an allocation. The types below
// say what a number can't; each matches its number with errors.Is, and Errno finds it.

// IOError says that something below the engine could not be read or written.
type IOError struct {
	Op  string
	Ino uint64
	Err error
}

func (e *IOError) Error() string        { return fmt.Sprintf("%s inode %d: %v", e.Op, e.Ino, e.Err) }
func (e *IOError) Unwrap() error        { return e.Err }
func (e *IOError) Is(target error) bool { return target == unix.EIO }

// CorruptError says that a fork's own files are damaged: bytes that were acknowledged are not there. Nothing is
// skipped or repaired by opening.
type CorruptError struct {
	Layer LayerID
	What  string
	Err   error
}

func (e *CorruptError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("layer %s is corrupt: %s: %v", e.Layer, e.What, e.Err)
	}
	return fmt.Sprintf("layer %s is corrupt: %s", e.Layer, e.What)
}
func (e *CorruptError) Unwrap() error        { return e.Err }
func (e *CorruptError) Is(target error) bool { return target == unix.EIO }

// BrokenError is what every change gets after a write or a sync failed in a way that leaves the journal's end
// unknown. Reading goes on; reopening the fork settles it.
type BrokenError struct{ Cause error }

func (e *BrokenError) Error() string {
	return "fork is read-only until it is opened again: " + e.Cause.Error()
}
func (e *BrokenError) Unwrap() error        { return e.Cause }
func (e *BrokenError) Is(target error) bool { return target == unix.EIO }

// ServedError says that a fork is open for writing already.
type ServedError struct {
	Fork string
	PID  int // the process that serves it; 0 when it can't be told
}

func (e *ServedError) Error() string {
	if e.PID != 0 {
		return fmt.Sprintf("fork %s is served by process %d", e.Fork, e.PID)
	}
	return fmt.Sprintf("fork %s is served by another process", e.Fork)
}
func (e *ServedError) Is(target error) bool { return target == unix.EBUSY }

// LimitError says that a change would exceed the fork's limits.
type LimitError struct {
	What  string // "bytes" or "files"
	Limit int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the fork's limit of %d %s is reached", e.Limit, e.What)
}
func (e *LimitError) Is(target error) bool { return target == unix.EDQUOT }

// BaseError says that a layer was made over another checkpoint, fork or layer than it was opened with.
type BaseError struct {
	Layer     LayerID
	What      string // "base", "fork" or "parent layer"
	Has, Want string
}

func (e *BaseError) Error() string {
	return fmt.Sprintf("layer %s has %s %q, not %q", e.Layer, e.What, e.Has, e.Want)
}

// Errno is the number for err: 0 for nil, the number in its chain, else EIO.
func Errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if n, ok := err.(syscall.Errno); ok {
		return n
	}
	var lim *LimitError
	if errors.As(err, &lim) {
		return unix.EDQUOT
	}
	var served *ServedError
	if errors.As(err, &served) {
		return unix.EBUSY
	}
	var io *IOError
	var bad *CorruptError
	var broken *BrokenError
	if errors.As(err, &io) || errors.As(err, &bad) || errors.As(err, &broken) {
		return unix.EIO
	}
	var n syscall.Errno
	if errors.As(err, &n) {
		return n
	}
	return unix.EIO
}
