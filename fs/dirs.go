package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tine/overlay"
	"tine/snapshot/image"
)

// Offsets in a directory stream: "." is 1, ".." is 2, an entry's is its position and 2. An offset is that of the
// last entry read; they stay valid while entries come and go, and over restarts.
const dots = 2

// list yields a directory's entries after off, "." and ".." first, without attributes for those.
func (f *face) list(dir, off uint64, yield func(e *fuse.DirEntry, attr func() (overlay.Attr, bool)) bool) error {
	if off < dots {
		parent, err := f.fork.Parent(dir)
		if err != nil {
			return err
		}
		if off < 1 && !yield(&fuse.DirEntry{Name: ".", Ino: dir, Mode: unix.S_IFDIR, Off: 1}, nil) {
			return nil
		}
		if !yield(&fuse.DirEntry{Name: "..", Ino: parent, Mode: unix.S_IFDIR, Off: 2}, nil) {
			return nil
		}
		off = dots
	}
	var e fuse.DirEntry
	return f.fork.ReadDir(dir, off-dots, func(d image.Dirent, attr func() (overlay.Attr, bool)) bool {
		e = fuse.DirEntry{Name: d.Name, Ino: d.Ino, Mode: uint32(d.Type) << 12, Off: d.Pos + dots}
		return yield(&e, attr)
	})
}

func (f *face) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	dir := node(in.NodeId)
	err := f.list(dir, in.Offset, func(e *fuse.DirEntry, _ func() (overlay.Attr, bool)) bool {
		return out.AddDirEntry(*e)
	})
	return f.status("readdir", dir, err)
}

func (f *face) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	dir := node(in.NodeId)
	err := f.list(dir, in.Offset, func(e *fuse.DirEntry, attr func() (overlay.Attr, bool)) bool {
		entry := out.AddDirLookupEntry(*e)
		if entry == nil {
			return false
		}
		// Node id 0 tells a name without looking it up: for the dots, and for what went meanwhile.
		if attr == nil {
			return true
		}
		if a, ok := attr(); ok {
			fillEntry(&a, entry)
		}
		return true
	})
	return f.status("readdirplus", dir, err)
}
