package durable

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// OS is the operating system's file system.
var OS FS = osFS{}

type osFS struct{}

type osFile struct{ *os.File }

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Mkdir(name string, perm fs.FileMode) error    { return os.Mkdir(name, perm) }
func (osFS) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }
func (osFS) Rename(oldname, newname string) error         { return os.Rename(oldname, newname) }
func (osFS) Link(oldname, newname string) error           { return os.Link(oldname, newname) }
func (osFS) Symlink(target, newname string) error         { return os.Symlink(target, newname) }
func (osFS) Remove(name string) error                     { return os.Remove(name) }
func (osFS) RemoveAll(name string) error                  { return os.RemoveAll(name) }
func (osFS) ReadDir(name string) ([]fs.DirEntry, error)   { return os.ReadDir(name) }
func (osFS) Stat(name string) (fs.FileInfo, error)        { return os.Stat(name) }
func (osFS) Lstat(name string) (fs.FileInfo, error)       { return os.Lstat(name) }
func (osFS) Chmod(name string, perm fs.FileMode) error    { return os.Chmod(name, perm) }

func (osFS) SyncDir(name string) error {
	d, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

func (f osFile) Datasync() error {
	return f.control("fdatasync", func(fd int) error { return unix.Fdatasync(fd) })
}

func (f osFile) Allocate(off, n int64) error {
	return f.control("fallocate", func(fd int) error { return unix.Fallocate(fd, 0, off, n) })
}

func (f osFile) Reserve(off, n int64) error {
	return f.control("fallocate", func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
}

func (f osFile) PunchHole(off, n int64) error {
	return f.control("fallocate", func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
}

// control runs a system call on the descriptor while it can't be closed, again after EINTR.
func (f osFile) control(op string, call func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = c.Control(func(fd uintptr) {
		for {
			if serr = call(int(fd)); serr != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	if serr != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: serr}
	}
	return nil
}
