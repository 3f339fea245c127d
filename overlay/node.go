package overlay

import (
	"slices"

	"golang.org/x/sys/unix"

	"tine/snapshot/content"
	"tine/snapshot/image"
)

type nodeFlags uint8

const (
	// nodeGone: the base's inode exists no more.
	nodeGone nodeFlags = 1 << iota
	// nodeBase: the base has this inode.
	nodeBase
	// nodeAtime: atime was set explicitly; else it is the mtime.
	nodeAtime
	// nodeLinkable: made by O_TMPFILE and never named, so that linkat may name it.
	nodeLinkable
)

// node is a changed inode. Only the state whose epoch it has may change it; all others share it.
type node struct {
	ino    uint64
	epoch  uint64
	parent uint64 // directories
	size   int64
	// baseLen is how much of content still shows where no extent lies: [0, baseLen).
	baseLen int64
	mtimeS  int64
	ctimeS  int64
	btimeS  int64
	atimeS  int64
	mtimeN  uint32
	ctimeN  uint32
	btimeN  uint32
	atimeN  uint32
	mode    uint32
	nlink   uint32
	uid     uint32
	gid     uint32
	rdev    uint32
	flags   nodeFlags

	xattrs []image.Xattr // replaced, never written into
	base   *baseContent  // what the base knows beyond attributes; immutable, nil for new inodes
	ext    *extents      // changed contents; nil when there are none
	dir    *dirState     // directories
	target string        // new symlinks
}

// baseContent is the part of a base inode that changes replace as a whole.
type baseContent struct {
	content content.ID
	size    int64 // of content, bytes
	gitlink []byte
}

// dirState is what a changed directory keeps besides its entries.
type dirState struct {
	count   int    // entries that exist, without . and ..
	changed int    // items in the dirents tree, whiteouts included
	nextPos uint64 // readdir position of the next new entry
}

func (n *node) isDir() bool     { return n.mode&unix.S_IFMT == unix.S_IFDIR }
func (n *node) isReg() bool     { return n.mode&unix.S_IFMT == unix.S_IFREG }
func (n *node) isSymlink() bool { return n.mode&unix.S_IFMT == unix.S_IFLNK }
func (n *node) dtype() uint8    { return uint8(n.mode & unix.S_IFMT >> 12) }

func (n *node) setMtime(t image.Time) { n.mtimeS, n.mtimeN = t.Sec, t.Nsec }
func (n *node) setCtime(t image.Time) { n.ctimeS, n.ctimeN = t.Sec, t.Nsec }
func (n *node) setAtime(t image.Time) {
	n.atimeS, n.atimeN = t.Sec, t.Nsec
	n.flags |= nodeAtime
}
func (n *node) mtime() image.Time { return image.Time{Sec: n.mtimeS, Nsec: n.mtimeN} }
func (n *node) ctime() image.Time { return image.Time{Sec: n.ctimeS, Nsec: n.ctimeN} }
func (n *node) btime() image.Time { return image.Time{Sec: n.btimeS, Nsec: n.btimeN} }
func (n *node) atime() image.Time {
	if n.flags&nodeAtime == 0 {
		return n.mtime()
	}
	return image.Time{Sec: n.atimeS, Nsec: n.atimeN}
}

// clone is a copy that the state with this epoch may change.
func (n *node) clone(epoch uint64) *node {
	c := *n
	c.epoch = epoch
	if n.dir != nil {
		d := *n.dir
		c.dir = &d
	}
	// Extents are cloned at their first change (extents.own): a chmod of a large file shouldn't copy them.
	return &c
}

// fromImage makes the node of a base inode before its first change.
func fromImage(b *image.Node, epoch uint64) *node {
	n := &node{
		ino: b.Ino, epoch: epoch, parent: b.Parent, size: b.Size, baseLen: b.Size,
		mtimeS: b.Mtime.Sec, mtimeN: b.Mtime.Nsec, ctimeS: b.Ctime.Sec, ctimeN: b.Ctime.Nsec,
		btimeS: b.Btime.Sec, btimeN: b.Btime.Nsec,
		mode: b.Mode, nlink: b.Nlink, uid: b.UID, gid: b.GID, rdev: b.Rdev,
		flags: nodeBase, xattrs: b.Xattrs,
	}
	if !b.Content.IsZero() || b.Gitlink != nil {
		n.base = &baseContent{content: b.Content, size: b.Size, gitlink: b.Gitlink}
	}
	return n
}

// pristine reports that the base's content is this file's or symlink's content, all of it.
func (n *node) pristine() bool {
	return n.base != nil && n.ext == nil && n.target == "" && n.baseLen == n.base.size && n.size == n.base.size
}

// image gives the node as a tree's inode. Content is zero where the bytes have changed and nobody has hashed them.
func (n *node) image() image.Node {
	b := image.Node{
		Ino: n.ino, Mode: n.mode, Nlink: n.nlink, UID: n.uid, GID: n.gid, Rdev: n.rdev, Size: n.size,
		Mtime: n.mtime(), Ctime: n.ctime(), Btime: n.btime(), Xattrs: n.xattrs,
	}
	if n.isDir() {
		b.Parent, b.Size = n.parent, 0
	}
	if n.base != nil {
		b.Gitlink = n.base.gitlink
		if n.pristine() {
			b.Content = n.base.content
		}
	}
	return b
}

// allocated is the number of content bytes that take space: the base's where they show, and extents.
func (n *node) allocated() int64 {
	a := n.baseLen
	if n.ext != nil {
		a += n.ext.data - n.ext.over
	}
	return a
}

// own bytes are those that this fork added: extents with data or a reservation.
func (n *node) ownBytes() int64 {
	if n.ext == nil {
		return 0
	}
	return n.ext.data
}

const (
	pageSize = 4096
	dirSize  = 4096 // st_size of every directory, as on a fresh ext4
)

// Attr is what stat tells. Owners are the fork's (owner map applied).
type Attr struct {
	Ino    uint64
	Size   int64 // bytes
	Blocks int64 // units of 512 bytes
	Atime  image.Time
	Mtime  image.Time
	Ctime  image.Time
	Btime  image.Time
	Mode   uint32
	Nlink  uint32
	UID    uint32
	GID    uint32
	Rdev   uint32 // Linux's new_encode_dev form
}

// IsDir and IsReg tell the type.
func (a *Attr) IsDir() bool { return a.Mode&unix.S_IFMT == unix.S_IFDIR }
func (a *Attr) IsReg() bool { return a.Mode&unix.S_IFMT == unix.S_IFREG }

func blocks(bytes int64) int64 { return (bytes + pageSize - 1) / pageSize * (pageSize / 512) }

func (f *Fork) attrOf(n *node) Attr {
	a := Attr{
		Ino: n.ino, Size: n.size, Atime: n.atime(), Mtime: n.mtime(), Ctime: n.ctime(), Btime: n.btime(),
		Mode: n.mode, Nlink: n.nlink, UID: f.owners.shownUID(n.uid), GID: f.owners.shownGID(n.gid), Rdev: n.rdev,
	}
	f.finishAttr(&a, n.allocated())
	return a
}

func (f *Fork) attrOfBase(b *image.Node) Attr {
	a := Attr{
		Ino: b.Ino, Size: b.Size, Atime: b.Mtime, Mtime: b.Mtime, Ctime: b.Ctime, Btime: b.Btime,
		Mode: b.Mode, Nlink: b.Nlink, UID: f.owners.shownUID(b.UID), GID: f.owners.shownGID(b.GID), Rdev: b.Rdev,
	}
	f.finishAttr(&a, b.Size)
	return a
}

func (f *Fork) finishAttr(a *Attr, allocated int64) {
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		a.Size, a.Blocks = dirSize, dirSize/512
	case unix.S_IFREG:
		a.Blocks = blocks(allocated)
	case unix.S_IFLNK:
		a.Blocks = 0 // fast symlinks take no block on ext4
		if a.Size >= 60 {
			a.Blocks = pageSize / 512
		}
	default:
		a.Size = 0
	}
}

// xattr finds an attribute.
func findXattr(list []image.Xattr, name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(x image.Xattr, n string) int {
		switch {
		case x.Name < n:
			return -1
		case x.Name > n:
			return 1
		}
		return 0
	})
}

// withXattr is list with name set to value; list itself stays as it is.
func withXattr(list []image.Xattr, name string, value []byte) []image.Xattr {
	i, found := findXattr(list, name)
	out := make([]image.Xattr, 0, len(list)+1)
	out = append(out, list[:i]...)
	out = append(out, image.Xattr{Name: name, Value: slices.Clone(value)})
	if found {
		i++
	}
	return append(out, list[i:]...)
}

// withoutXattr is list without name.
func withoutXattr(list []image.Xattr, name string) []image.Xattr {
	i, found := findXattr(list, name)
	if !found {
		return list
	}
	if len(list) == 1 {
		return nil
	}
	return slices.Delete(slices.Clone(list), i, i+1)
}
