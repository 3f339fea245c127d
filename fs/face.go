package fs

import (
	"log/slog"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tine/fs/transport"
	"tine/overlay"
	"tine/snapshot/image"
)

const (
	// rootAlias is a second node id of the root, for names that go-fuse keeps for itself in the first.
	rootAlias = 1<<63 | 1
	// probeNode is the node id of the file that settles OPEN and FLUSH before a mount is attached.
	probeNode = 1<<63 | 2
)

// node is the inode number of a node id.
func node(id uint64) uint64 {
	if id == rootAlias {
		return image.Root
	}
	return id
}

// face is a fork as go-fuse's protocol code calls it. What it doesn't override (locks) the kernel does not ask for.
type face struct {
	fuse.RawFileSystem
	fork *overlay.Fork
	log  *slog.Logger
	conn [16]byte
	// replies: results of requests that must not be done twice are kept in the journal (takeover).
	replies bool
	// forgot is called for inodes without a name that the kernel may have let go.
	forgot func(ino uint64)

	complaints *complaints
}

func (f *face) String() string { return subtype }

// caller describes who made a request.
func (f *face) caller(h *fuse.InHeader, umask uint32) overlay.Caller {
	c := overlay.Caller{UID: h.Uid, GID: h.Gid, PID: h.Pid, Umask: umask, Conn: f.conn}
	if h.Uid != 0 {
		c.Groups = groupsOf(h.Pid)
	}
	if f.replies {
		c.Unique = h.Unique &^ transport.ResendBit
		c.Resent = h.Unique&transport.ResendBit != 0
	}
	return c
}

func (f *face) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	dir := node(h.NodeId)
	a, err := f.fork.Lookup(dir, name)
	if err == unix.ENOENT {
		out.NodeId = 0 // a negative entry, which stays until we invalidate it
		out.EntryValid = forever
		return fuse.OK
	}
	if err != nil {
		return f.status("lookup", dir, err)
	}
	fillEntry(&a, out)
	return fuse.OK
}

// Forget is called for every inode that the kernel drops; only those without a name matter.
func (f *face) Forget(id, _ uint64) {
	if id == probeNode || id == rootAlias || id == image.Root {
		return
	}
	if a, err := f.fork.Getattr(id); err == nil && a.Nlink == 0 {
		f.forgot(id)
	}
}

func (f *face) Readlink(_ <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	target, err := f.fork.Readlink(h.NodeId)
	if err != nil {
		return nil, f.status("readlink", h.NodeId, err)
	}
	return []byte(target), fuse.OK
}

func (f *face) StatFs(_ <-chan struct{}, h *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	st, err := f.fork.Statfs()
	if err != nil {
		return f.status("statfs", h.NodeId, err)
	}
	out.Blocks, out.Bfree, out.Bavail = st.Blocks, st.Bfree, st.Bavail
	out.Files, out.Ffree = st.Files, st.Ffree
	out.Bsize, out.Frsize, out.NameLen = st.Bsize, st.Bsize, 255
	return fuse.OK
}

// Ioctl has none. ENOSYS would do, but not say so.
func (f *face) Ioctl(<-chan struct{}, *fuse.IoctlIn, []byte, *fuse.IoctlOut, []byte) fuse.Status {
	return fuse.Status(unix.ENOTTY)
}
