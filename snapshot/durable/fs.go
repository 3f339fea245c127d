package durable

import (
	"io"
	"io/fs"
)

// FS is the part of a file system that durable state needs. Errors are those of package os (*fs.PathError,
// *os.LinkError around a syscall.Errno). All names are paths as the operating system takes them.
type FS interface {
	// OpenFile opens with flags of package os; O_CLOEXEC is implied.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Mkdir(name string, perm fs.FileMode) error
	// MkdirAll makes name and its missing parents. They are durable after SyncDir of each parent.
	MkdirAll(name string, perm fs.FileMode) error
	// Rename replaces newname atomically. Durable after SyncDir of both directories.
	Rename(oldname, newname string) error
	// Link gives oldname's file a second name; an error with fs.ErrExist if newname exists.
	Link(oldname, newname string) error
	Symlink(target, newname string) error
	Remove(name string) error
	RemoveAll(name string) error
	// ReadDir is sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)
	Chmod(name string, perm fs.FileMode) error
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
}

// File is an open file. A write that fails may have had part of its effect.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Closer
	io.Seeker
	Name() string
	Stat() (fs.FileInfo, error)
	// Truncate sets the size in bytes; it doesn't move the file offset.
	Truncate(size int64) error
	// Sync makes the file's bytes and all its metadata durable (fsync).
	Sync() error
	// Datasync makes its bytes, and the size needed to read them, durable (fdatasync).
	Datasync() error
	// Allocate reserves blocks for [off, off+n) and extends the size when it ends behind it (fallocate mode 0).
	Allocate(off, n int64) error
	// Reserve keeps blocks ready for [off, off+n); the size stays. A Truncate gives those behind the size back.
	Reserve(off, n int64) error
	// PunchHole makes [off, off+n) read as zeroes and frees its blocks; the size stays.
	PunchHole(off, n int64) error
	// Fd is for mmap, flock, copy_file_range and lseek(SEEK_DATA); writing through it bypasses fault injection.
	Fd() uintptr
}
