package export

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"tine/snapshot/content"
	"tine/snapshot/durable"
	"tine/snapshot/image"
)

// ToDir writes a tree to dir, which must not exist, or be an empty directory, and whose parent must exist. When it fails,
// dir is as it was. Owners are set when the process is root; otherwise everything is the process's.
func ToDir(ctx context.Context, f image.Files, dir string, opt Options) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	ents, err := os.ReadDir(dir)
	exists := err == nil
	if len(ents) > 0 {
		return fmt.Errorf("export to %s: %w", dir, unix.ENOTEMPTY)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("export: %w", err)
	}
	var r [6]byte
	rand.Read(r[:])
	tmp := filepath.Join(filepath.Dir(dir), ".tine-export-"+hex.EncodeToString(r[:]))
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return fmt.Errorf("export to %s: %w", dir, err)
	}
	err = writeTree(ctx, f, tmp, opt)
	if err == nil && exists {
		err = unix.Rmdir(dir) // fails if somebody has put something there
	}
	if err == nil {
		err = durable.OS.Rename(tmp, dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("export to %s: %w", dir, err), removeAll(tmp))
	}
	return nil
}

// removeAll is os.RemoveAll, which can't enter directories without permission bits unless we are root.
func removeAll(dir string) error {
	if os.Geteuid() != 0 {
		filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(p, 0o700)
			}
			return nil
		})
	}
	return os.RemoveAll(dir)
}

// dirWriter stands in one directory at a time and steps with openat, so that paths may be longer than PATH_MAX, trees deeper
// than the limit of open files, and nothing is reached through a symlink.
type dirWriter struct {
	ctx    context.Context
	files  image.Files
	opt    *Options
	owners bool
	root   int // descriptor of the top directory
	cur    int // of the current one
	// first is where an inode with several names got its first one.
	first map[uint64]place
	buf   []byte
}

type place struct {
	dir  []string // names from the root
	name string
}

func writeTree(ctx context.Context, f image.Files, dir string, opt Options) error {
	root, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	w := &dirWriter{ctx: ctx, files: f, opt: &opt, owners: os.Geteuid() == 0, root: root, first: map[uint64]place{}, buf: make([]byte, 256<<10)}
	if w.cur, err = unix.Openat(root, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	defer func() { unix.Close(w.cur) }()
	n, err := f.Node(image.Root)
	if err != nil {
		return err
	}
	if err := w.fill(n.Ino, nil); err != nil {
		return err
	}
	if err := w.attributes(root, "", &n); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(root), times(&n), 0)
}

// fill writes the entries of the current directory. path is where it is.
func (w *dirWriter) fill(dir uint64, path []string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	entries, err := list(w.files, dir)
	if err != nil {
		return err
	}
	for _, d := range entries {
		if err := w.entry(d, path); err != nil {
			return fmt.Errorf("%q: %w", d.Name, err)
		}
	}
	return nil
}

func (w *dirWriter) entry(d image.Dirent, path []string) error {
	n, err := w.files.Node(d.Ino)
	if err != nil {
		return err
	}
	if n.Mode&modeType == modeDir {
		return w.directory(n, d.Name, path)
	}
	if n.Nlink > 1 {
		if p, ok := w.first[n.Ino]; ok {
			return w.link(p, d.Name)
		}
	}
	made, err := w.node(&n, d.Name, path)
	if err != nil || !made {
		return err
	}
	if n.Nlink > 1 {
		w.first[n.Ino] = place{path, d.Name}
	}
	w.opt.progress(n.Size)
	return nil
}

// directory makes a directory, fills it standing in it, and steps back.
func (w *dirWriter) directory(n image.Node, name string, path []string) error {
	if err := unix.Mkdirat(w.cur, name, 0o700); err != nil {
		return err
	}
	var here unix.Stat_t
	if err := unix.Fstat(w.cur, &here); err != nil {
		return err
	}
	fd, err := unix.Openat(w.cur, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	unix.Close(w.cur)
	w.cur = fd
	if err := w.fill(n.Ino, append(path[:len(path):len(path)], name)); err != nil {
		return err
	}
	up, err := w.parent(&here)
	if err != nil {
		return err
	}
	// Not the one from above: a subdirectory has closed that and stepped back by another.
	fd, w.cur = w.cur, up
	// Last of all: a directory without permission to be searched can't be left.
	err = w.attributes(fd, name, &n)
	unix.Close(fd)
	if err != nil {
		return err
	}
	return unix.UtimesNanoAt(w.cur, name, times(&n), unix.AT_SYMLINK_NOFOLLOW)
}

func (w *dirWriter) parent(want *unix.Stat_t) (int, error) {
	up, err := unix.Openat(w.cur, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(up, &st); err != nil || st.Dev != want.Dev || st.Ino != want.Ino {
		unix.Close(up)
		return -1, errors.New("the directory was moved while it was written")
	}
	return up, nil
}

// link gives the node whose first name is at p another name here.
func (w *dirWriter) link(p place, name string) error {
	dir := w.root
	for _, step := range p.dir {
		next, err := unix.Openat(dir, step, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if dir != w.root {
			unix.Close(dir)
		}
		if err != nil {
			return err
		}
		dir = next
	}
	if dir != w.root {
		defer unix.Close(dir)
	}
	return unix.Linkat(dir, p.name, w.cur, name, 0)
}

// node makes anything but a directory; made is false for what is skipped.
func (w *dirWriter) node(n *image.Node, name string, path []string) (made bool, err error) {
	switch typ := n.Mode & modeType; typ {
	case modeRegular:
		return true, w.file(n, name)
	case modeSymlink:
		target, err := readLink(w.files, n)
		if err != nil {
			return false, err
		}
		if err := unix.Symlinkat(target, w.cur, name); err != nil {
			return false, err
		}
	case modeFIFO, modeSocket:
		if err := unix.Mknodat(w.cur, name, typ|0o600, 0); err != nil {
			return false, err
		}
	case modeChar, modeBlock:
		if !w.opt.Devices {
			w.opt.skip(filepath.Join(append(path[:len(path):len(path)], name)...), "device node")
			return false, nil
		}
		if err := unix.Mknodat(w.cur, name, typ|0o600, int(n.Rdev)); err != nil {
			return false, err
		}
	default:
		return false, fmt.Errorf("unknown type of mode %#o", n.Mode)
	}
	fd, err := unix.Openat(w.cur, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	if err := w.attributes(fd, name, n); err != nil {
		return false, err
	}
	return true, unix.UtimesNanoAt(w.cur, name, times(n), unix.AT_SYMLINK_NOFOLLOW)
}

func readLink(f image.Files, n *image.Node) (string, error) {
	r, err := f.OpenFile(*n)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := content.ReadAll(r, 4096)
	return string(b), err
}

func (w *dirWriter) file(n *image.Node, name string) error {
	fd, err := unix.Openat(w.cur, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), name)
	err = w.contents(out, n)
	if err == nil {
		err = w.attributes(fd, name, n)
	}
	if err == nil {
		err = unix.UtimesNanoAt(w.cur, name, times(n), unix.AT_SYMLINK_NOFOLLOW)
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}

// contents copies the file's bytes; blocks of zeroes become holes.
func (w *dirWriter) contents(out *os.File, n *image.Node) error {
	r, err := w.files.OpenFile(*n)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := out.Truncate(n.Size); err != nil {
		return err
	}
	return EachData(w.ctx, r, w.buf, func(b []byte, off int64) error {
		if content.IsZero(b) {
			return nil
		}
		_, err := out.WriteAt(b, off)
		return err
	})
}

// EachData reads all of r but its known holes into buf, piece by piece.
func EachData(ctx context.Context, r content.Reader, buf []byte, each func(b []byte, off int64) error) error {
	size := r.Size()
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		end := size
		if s, ok := r.(content.Sparse); ok {
			if off, end = s.NextData(off); off >= size {
				return nil
			}
		}
		for off < end {
			b := buf[:min(int64(len(buf)), end-off)]
			if err := content.ReadFull(r, b, off); err != nil {
				return err
			}
			if err := each(b, off); err != nil {
				return err
			}
			off += int64(len(b))
		}
	}
	return nil
}

func times(n *image.Node) []unix.Timespec {
	t := unix.Timespec{Sec: n.Mtime.Sec, Nsec: int64(n.Mtime.Nsec)}
	return []unix.Timespec{t, t} // the access time of a checkpoint is its modification time
}

func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// attributes sets owner, extended attributes and mode, in this order: a change of owner clears set-user-id bits and
// capabilities. fd may be an O_PATH descriptor; name is its name in the current directory.
func (w *dirWriter) attributes(fd int, name string, n *image.Node) error {
	if w.owners {
		if err := unix.Fchownat(fd, "", int(n.UID), int(n.GID), unix.AT_EMPTY_PATH); err != nil {
			return fmt.Errorf("set the owner: %w", err)
		}
	}
	path, symlink := fdPath(fd), n.Mode&modeType == modeSymlink
	if symlink {
		path = fdPath(w.cur) + "/" + name // a descriptor's own path would be followed
	}
	set := unix.Setxattr
	if symlink {
		set = unix.Lsetxattr
	}
	for _, x := range n.Xattrs {
		if err := set(path, x.Name, x.Value, 0); err != nil {
			return fmt.Errorf("set %s: %w", x.Name, err)
		}
	}
	if symlink {
		return nil
	}
	if err := unix.Chmod(path, n.Mode&0o7777); err != nil {
		return fmt.Errorf("set the mode: %w", err)
	}
	return nil
}
