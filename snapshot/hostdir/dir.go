// Package hostdir reads directory trees of the host, for imports. Every step is taken relative to an open directory and
// without following symlinks, so that paths longer than PATH_MAX work, and nobody who moves directories about meanwhile
// leads a walk out of its tree. Nothing is written; atimes are left alone where the kernel lets them be.
package hostdir

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tine/snapshot/image"
)

// Dir is an open directory.
type Dir struct {
	f    *os.File
	path string // for errors
}

// Open opens the directory at path, which may be, or lead through, a symlink.
func Open(path string) (*Dir, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{f, path}, nil
}

// Close closes it.
func (d *Dir) Close() error { return d.f.Close() }

// Path is how the directory was reached, for messages.
func (d *Dir) Path() string { return d.path }

func (d *Dir) fd() int { return int(d.f.Fd()) }

func (d *Dir) fail(op, name string, err error) error {
	path := d.path
	if name != "" {
		path += "/" + name
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}

// Names lists the directory, sorted by bytes.
func (d *Dir) Names() ([]string, error) {
	names, err := d.f.Readdirnames(-1)
	if err != nil {
		return nil, d.fail("read directory", "", err)
	}
	slices.Sort(names)
	return names, nil
}

// Info is an inode's attributes.
type Info struct {
	Dev, Ino     uint64
	Mode         uint32
	Nlink        uint64
	UID, GID     uint32
	Rdev         uint32 // Linux's new_encode_dev form
	Size         int64
	Blocks       int64 // of 512 bytes
	Mtime, Ctime image.Time
}

func info(st *unix.Stat_t) Info {
	major, minor := unix.Major(st.Rdev), unix.Minor(st.Rdev)
	return Info{
		Dev: st.Dev, Ino: st.Ino, Mode: st.Mode, Nlink: uint64(st.Nlink), UID: st.Uid, GID: st.Gid,
		Rdev: minor&0xff | major<<8 | minor&^0xff<<12,
		Size: st.Size, Blocks: st.Blocks,
		Mtime: image.Time{Sec: st.Mtim.Sec, Nsec: uint32(st.Mtim.Nsec)},
		Ctime: image.Time{Sec: st.Ctim.Sec, Nsec: uint32(st.Ctim.Nsec)},
	}
}

// Same reports whether nothing has touched the inode between two looks at it.
func (i Info) Same(j Info) bool {
	return i.Dev == j.Dev && i.Ino == j.Ino && i.Mode == j.Mode && i.Size == j.Size && i.Mtime == j.Mtime && i.Ctime == j.Ctime
}

// Lstat looks at a name; "" is the directory itself.
func (d *Dir) Lstat(name string) (Info, error) {
	var st unix.Stat_t
	err := unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT)
	if err != nil {
		return Info{}, d.fail("stat", name, err)
	}
	return info(&st), nil
}

// OpenDir opens a directory below.
func (d *Dir) OpenDir(name string) (*Dir, error) {
	f, err := d.open(name, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &Dir{f, d.path + "/" + name}, nil
}

func (d *Dir) open(name string, flags int) (*os.File, error) {
	// O_NONBLOCK: a FIFO that has taken the name must not make us wait. O_NOATIME is refused on others' files.
	flags |= unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK
	var fd int
	err := error(unix.EPERM)
	for _, f := range []int{flags | unix.O_NOATIME, flags} {
		if errors.Is(err, unix.EPERM) {
			if fd, err = unix.Openat(d.fd(), name, f, 0); errors.Is(err, unix.EINTR) {
				fd, err = unix.Openat(d.fd(), name, f, 0)
			}
		}
	}
	if err != nil {
		return nil, d.fail("open", name, err)
	}
	return os.NewFile(uintptr(fd), d.path+"/"+name), nil
}

// OpenFile opens a regular file and tells what it is at that moment.
func (d *Dir) OpenFile(name string) (*File, error) {
	f, err := d.open(name, 0)
	if err != nil {
		return nil, err
	}
	file := &File{File: f}
	if file.Info, err = file.Stat(); err == nil && file.Info.Mode&unix.S_IFMT != unix.S_IFREG {
		err = d.fail("open", name, errors.New("it has become something else than a regular file"))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return file, nil
}

// Readlink reads a symlink.
func (d *Dir) Readlink(name string) (string, error) {
	buf := make([]byte, unix.PathMax+1)
	n, err := unix.Readlinkat(d.fd(), name, buf)
	if err != nil {
		return "", d.fail("readlink", name, err)
	}
	return string(buf[:n]), nil
}

// Xattrs reads all extended attributes of a name ("": the directory itself), sorted. Attributes that only describe the
// host's own labels (security.selinux and the like) are left out, since no other host could keep them.
func (d *Dir) Xattrs(name string) ([]image.Xattr, error) {
	// There is no lgetxattrat before Linux 6.13; the magic link of the directory's descriptor is as good.
	path := "/proc/self/fd/" + strconv.Itoa(d.fd())
	list, get := unix.Listxattr, unix.Getxattr
	if name != "" {
		path += "/" + name
		list, get = unix.Llistxattr, unix.Lgetxattr
	}
	names, err := sized(func(buf []byte) (int, error) { return list(path, buf) })
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && len(names) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, d.fail("list xattrs", name, err)
	}
	var out []image.Xattr
	for _, b := range bytes.Split(bytes.TrimSuffix(names, []byte{0}), []byte{0}) {
		attr := string(b)
		if !kept(attr) {
			continue
		}
		value, err := sized(func(buf []byte) (int, error) { return get(path, attr, buf) })
		if errors.Is(err, unix.ENODATA) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, d.fail("read xattr "+attr, name, err)
		}
		out = append(out, image.Xattr{Name: attr, Value: value})
	}
	slices.SortFunc(out, func(a, b image.Xattr) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func kept(attr string) bool {
	switch attr {
	case "security.capability", "system.posix_acl_access", "system.posix_acl_default":
		return true
	}
	return strings.HasPrefix(attr, "user.") || strings.HasPrefix(attr, "trusted.") && !strings.HasPrefix(attr, "trusted.overlay.")
}

// sized calls a function that fills a buffer with a buffer that is large enough.
func sized(call func([]byte) (int, error)) ([]byte, error) {
	for range 8 {
		n, err := call(nil)
		if err != nil || n == 0 {
			return nil, err
		}
		buf := make([]byte, n)
		n, err = call(buf)
		if errors.Is(err, unix.ERANGE) {
			continue // it has grown
		}
		if err != nil {
			return nil, err
		}
		return buf[:n], nil
	}
	return nil, fmt.Errorf("it changes all the time: %w", unix.ERANGE)
}
