package objects

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// NotRegularError says that a repository has something else where a file belongs: opening a FIFO would wait for ever,
// and a device has no end.
type NotRegularError struct{ Path string }

func (e *NotRegularError) Error() string { return e.Path + ": not a regular file" }

// TooLargeError says that a file of a repository is larger than any that git writes there.
type TooLargeError struct {
	Path      string
	Size, Max int64 // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s: %d bytes; at most %d are read", e.Path, e.Size, e.Max)
}

// isNull reports whether st is /dev/null, which users name where they want no file.
func isNull(st os.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && st.Mode()&os.ModeCharDevice != 0 && sys.Rdev == unix.Mkdev(1, 3)
}

// OpenRegular opens a regular file for reading; symlinks to one are followed, as git does. It never waits.
func OpenRegular(path string) (*os.File, os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ENXIO) { // a socket
		return nil, nil, &NotRegularError{path}
	}
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = &os.PathError{Op: "read", Path: path, Err: unix.EISDIR}
	} else if err == nil && !st.Mode().IsRegular() {
		err = &NotRegularError{path}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, st, nil
}

// ReadRegular reads a regular file of at most max bytes; /dev/null is an empty one.
func ReadRegular(path string, max int64) ([]byte, error) {
	if st, err := os.Stat(path); err == nil && isNull(st) {
		return nil, nil
	}
	f, st, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st.Size() > max {
		return nil, &TooLargeError{path, st.Size(), max}
	}
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(b)) > max { // it grew meanwhile
		err = &TooLargeError{path, int64(len(b)), max}
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}
