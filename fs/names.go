package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tine/overlay"
)

// entry finishes an operation that makes or names an inode.
func (f *face) entry(op string, dir uint64, a *overlay.Attr, err error, out *fuse.EntryOut) fuse.Status {
	if err != nil {
		return f.status(op, dir, err)
	}
	fillEntry(a, out)
	return fuse.OK
}

func (f *face) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	dir := node(in.NodeId)
	a, err := f.fork.Mknod(f.caller(&in.InHeader, in.Umask), dir, name, in.Mode, in.Rdev)
	return f.entry("mknod", dir, &a, err, out)
}

func (f *face) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	dir := node(in.NodeId)
	a, err := f.fork.Mkdir(f.caller(&in.InHeader, in.Umask), dir, name, in.Mode)
	return f.entry("mkdir", dir, &a, err, out)
}

func (f *face) Symlink(_ <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	dir := node(h.NodeId)
	a, err := f.fork.Symlink(f.caller(h, 0), dir, name, target)
	return f.entry("symlink", dir, &a, err, out)
}

func (f *face) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	dir := node(in.NodeId)
	a, err := f.fork.Link(f.caller(&in.InHeader, 0), node(in.Oldnodeid), dir, name)
	return f.entry("link", dir, &a, err, out)
}

// Create answers the one request that both makes and opens a file.
func (f *face) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	dir := node(in.NodeId)
	// Always exclusively: see the package comment.
	a, err := f.fork.Create(f.caller(&in.InHeader, in.Umask), dir, name, in.Mode, true)
	if err == unix.EEXIST && in.Flags&unix.O_EXCL == 0 {
		return fuse.Status(unix.ESTALE)
	}
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	return f.entry("create", dir, &a, err, &out.EntryOut)
}

func (f *face) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	dir := node(in.NodeId)
	a, err := f.fork.Tmpfile(f.caller(&in.InHeader, in.Umask), dir, in.Mode)
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	return f.entry("tmpfile", dir, &a, err, &out.EntryOut)
}

func (f *face) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	dir := node(h.NodeId)
	return f.status("unlink", dir, f.fork.Unlink(f.caller(h, 0), dir, name))
}

func (f *face) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	dir := node(h.NodeId)
	return f.status("rmdir", dir, f.fork.Rmdir(f.caller(h, 0), dir, name))
}

func (f *face) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	dir := node(in.NodeId)
	return f.status("rename", dir, f.fork.Rename(f.caller(&in.InHeader, 0), dir, from, node(in.Newdir), to, in.Flags))
}
