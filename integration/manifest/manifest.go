// Package manifest describes a directory tree as a user can observe it and finds the differences between two.
//
// It walks by descriptors, so that depth is not limited by PATH_MAX, and treats names as bytes.
package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Entry is what can be seen of one path.
type Entry struct {
	Mode   uint32 // S_IFMT and permission bits
	UID    uint32
	GID    uint32
	Size   int64 // regular files and symlinks
	Mtime  int64 // ns since 1970
	Nlink  uint64
	Rdev   uint64
	Group  string // the first path (in walk order) of the same inode, where it has several in the tree
	Sum    string // SHA-256 of a regular file's bytes
	Target string // a symlink's
	Xattrs map[string]string
	Ino    uint64
	DType  uint8 // as its directory's listing gave it
	DIno   uint64
}

// Manifest maps paths ("." for the root, "a/b" below) to what is there.
type Manifest map[string]Entry

// Options of Take.
type Options struct {
	// Skip leaves out a path and what is below it.
	Skip func(path string) bool
}

// Take reads the tree at root.
func Take(root string, opt Options) (Manifest, error) {
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", root, err)
	}
	w := walker{opt: opt, out: Manifest{}, first: map[[2]uint64]string{}}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, err
	}
	x, err := xattrs(fmt.Sprintf("/proc/self/fd/%d", fd), true)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("xattrs of %s: %w", root, err)
	}
	e := entry(&st)
	e.Xattrs = x
	w.out["."] = e
	if err := w.dir(fd, "."); err != nil {
		return nil, fmt.Errorf("%s: %w", root, err)
	}
	return w.out, nil
}

type walker struct {
	opt   Options
	out   Manifest
	first map[[2]uint64]string // (dev, ino) of what has several links -> its first path
}

func entry(st *unix.Stat_t) Entry {
	e := Entry{Mode: st.Mode, UID: st.Uid, GID: st.Gid, Mtime: st.Mtim.Nano(), Nlink: uint64(st.Nlink), Ino: st.Ino}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFLNK:
		e.Size = st.Size
	case unix.S_IFCHR, unix.S_IFBLK:
		e.Rdev = st.Rdev
	}
	return e
}

// dir walks an open directory and closes it.
func (w *walker) dir(fd int, path string) error {
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	list, err := readDir(fd)
	if err != nil {
		return fmt.Errorf("list %s: %w", path, err)
	}
	slices.SortFunc(list, func(a, b dirent) int { return strings.Compare(a.name, b.name) })
	for i, d := range list {
		p := d.name
		if path != "." {
			p = path + "/" + d.name
		}
		if i > 0 && list[i-1].name == d.name {
			return fmt.Errorf("%s is listed twice", p)
		}
		if w.opt.Skip != nil && w.opt.Skip(p) {
			continue
		}
		if err := w.path(fd, d, p); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) path(dir int, d dirent, p string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, d.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("stat %s: %w", p, err)
	}
	e := entry(&st)
	e.DType, e.DIno = d.typ, d.ino
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		key := [2]uint64{st.Dev, st.Ino}
		if w.first[key] == "" {
			w.first[key] = p
		}
		e.Group = w.first[key]
	}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Sum, err = sum(dir, d.name)
	case unix.S_IFLNK:
		buf := make([]byte, 4097)
		var n int
		if n, err = unix.Readlinkat(dir, d.name, buf); err == nil {
			e.Target = string(buf[:n])
		}
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", p, err)
	}
	if e.Xattrs, err = xattrs(fmt.Sprintf("/proc/self/fd/%d/%s", dir, d.name), false); err != nil {
		return fmt.Errorf("xattrs of %s: %w", p, err)
	}
	w.out[p] = e
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	sub, err := unix.Openat(dir, d.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", p, err)
	}
	return w.dir(sub, p)
}

func sum(dir int, name string) (string, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

func xattrs(path string, follow bool) (map[string]string, error) {
	list, get := unix.Llistxattr, unix.Lgetxattr
	if follow {
		list, get = unix.Listxattr, unix.Getxattr
	}
	n, err := list(path, nil)
	if err == unix.EOPNOTSUPP || err == nil && n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	buf := make([]byte, n+4096)
	if n, err = list(path, buf); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, k := range strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		v := make([]byte, 65536)
		m, err := get(path, k, v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k, err)
		}
		out[k] = string(v[:m])
	}
	return out, nil
}

type dirent struct {
	name string
	typ  uint8
	ino  uint64
}

// readDir lists with getdents64 itself: the names, types and inode numbers exactly as the file system gave them.
func readDir(fd int) ([]dirent, error) {
	var out []dirent
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return out, nil
		}
		for b := buf[:n]; len(b) > 0; {
			l := int(b[16]) | int(b[17])<<8
			var ino uint64
			for i := 7; i >= 0; i-- {
				ino = ino<<8 | uint64(b[i])
			}
			name := string(b[19:l])
			if i := strings.IndexByte(name, 0); i >= 0 {
				name = name[:i]
			}
			if name != "." && name != ".." {
				out = append(out, dirent{name, b[18], ino})
			}
			b = b[l:]
		}
	}
}
