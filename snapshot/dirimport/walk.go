package dirimport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"tine/snapshot/content"
	"tine/snapshot/hostdir"
	"tine/snapshot/image"
)

// dir adds a directory, that st describes, and everything below. Its node gets its number before its children's, which
// are in the order of names.
func (im *importer) dir(ctx context.Context, d *hostdir.Dir, path string, st hostdir.Info) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if (inode{st.Dev, st.Ino}) == im.own {
		return &HoldsError{d.Path(), "the store itself"}
	}
	n, err := im.node(d, "", st)
	if err != nil {
		return err
	}
	names, err := d.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		at := name
		if path != "" {
			at = path + "/" + name
		}
		if im.forks[at] {
			if im.excluded(at, true) {
				continue
			}
			return &HoldsError{d.Path() + "/" + name, "a mounted fork"}
		}
		kid, err := d.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since the directory was listed
		}
		if err != nil {
			return err
		}
		isDir := kid.Mode&unix.S_IFMT == unix.S_IFDIR
		if im.excluded(at, isDir) {
			continue
		}
		ino := im.next
		switch {
		case isDir:
			im.name(n, name, ino)
			err = im.enter(ctx, d, name, at, st.Dev)
		case kid.Nlink > 1 && im.links[inode{kid.Dev, kid.Ino}] != nil:
			im.name(n, name, im.links[inode{kid.Dev, kid.Ino}].Ino)
		default:
			im.name(n, name, ino)
			err = im.leaf(ctx, d, name, kid)
		}
		if err != nil {
			return err
		}
	}
	if now, err := d.Lstat(""); err != nil {
		return err
	} else if !now.Same(st) {
		return &ChangedError{d.Path()}
	}
	return nil
}

func (im *importer) name(dir *image.Node, text string, ino uint64) {
	im.names = append(im.names, name{dir.Ino, text, ino})
}

func (im *importer) excluded(path string, dir bool) bool {
	found := false
	for i, p := range im.excludes {
		if p.Match(path, dir) {
			im.matched[i], found = true, true
		}
	}
	return found
}

// enter goes down one directory; dev is the device above.
func (im *importer) enter(ctx context.Context, d *hostdir.Dir, name, path string, dev uint64) error {
	sub, err := d.OpenDir(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	st, err := sub.Lstat("") // of what was opened: an automount, or a mount of the meantime, is another one
	if err != nil {
		return err
	}
	if st.Dev != dev {
		what, err := sub.Foreign()
		if err != nil {
			return err
		}
		if what != "" {
			return &HoldsError{sub.Path(), what}
		}
	}
	return im.dir(ctx, sub, path, st)
}

// node makes the node of what d has under name ("": d itself). Contents come later.
func (im *importer) node(d *hostdir.Dir, name string, st hostdir.Info) (*image.Node, error) {
	xattrs, err := d.Xattrs(name)
	if err != nil {
		return nil, err
	}
	n := &image.Node{
		Ino: im.next, Mode: st.Mode, UID: st.UID, GID: st.GID, Mtime: st.Mtime, Ctime: st.Mtime, Btime: st.Mtime, Xattrs: xattrs,
	}
	im.next++
	im.nodes = append(im.nodes, n)
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		im.links[inode{st.Dev, st.Ino}] = n
	}
	return n, nil
}

// leaf adds anything but a directory.
func (im *importer) leaf(ctx context.Context, d *hostdir.Dir, name string, st hostdir.Info) error {
	n, err := im.node(d, name, st)
	if err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		f, err := d.OpenFile(name)
		if err != nil {
			return err
		}
		if !f.Info.Same(st) {
			f.Close()
			return &ChangedError{d.Path() + "/" + name}
		}
		select {
		case im.tasks <- func() error { defer f.Close(); return im.file(n, f) }:
		case <-ctx.Done():
			f.Close()
			return ctx.Err()
		}
	case unix.S_IFLNK:
		target, err := d.Readlink(name)
		if err != nil {
			return err
		}
		n.Size = int64(len(target))
		if n.Content, err = im.store.Put([]byte(target), content.SHA1); err != nil {
			return err
		}
	case unix.S_IFCHR, unix.S_IFBLK:
		n.Rdev = st.Rdev
	case unix.S_IFIFO, unix.S_IFSOCK:
	default:
		return fmt.Errorf("%s/%s has the unknown mode %#o", d.Path(), name, st.Mode)
	}
	return nil
}

// file stores a file's contents.
func (im *importer) file(n *image.Node, f *hostdir.File) error {
	id, err := im.store.PutReader(f, f.Size(), content.SHA1)
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Name(), err)
	}
	n.Size, n.Content = f.Size(), id
	now, err := f.Stat()
	if err != nil {
		return err
	}
	if !now.Same(f.Info) {
		return &ChangedError{f.Name()}
	}
	files, bytes := im.files.Add(1), im.bytes.Add(n.Size)
	if im.req.Progress != nil && files%64 == 0 {
		im.req.Progress(files, bytes)
	}
	return nil
}
