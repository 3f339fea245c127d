package image

import (
	"errors"

	"tine/snapshot/content"
)

// Root is the inode number of every tree's root directory; it equals FUSE's root node id.
const Root uint64 = 1

// Readdir positions. Position 0 is the start of a directory; a base entry's position is 1 + its index in the
// checkpoint's directory; entries made in a fork are numbered from NewPos on (overlay).
const NewPos uint64 = 1 << 40

// ErrNotExist is returned for an inode or a name that the tree doesn't have.
var ErrNotExist = errors.New("does not exist")

// Time is seconds since 1970 UTC (may be negative) and nanoseconds, 0 <= Nsec < 1e9.
type Time struct {
	Sec  int64
	Nsec uint32
}

// Before orders times.
func (t Time) Before(u Time) bool { return t.Sec < u.Sec || t.Sec == u.Sec && t.Nsec < u.Nsec }

// Xattr is one extended attribute with its full name ("user.x", "security.capability", "system.posix_acl_access").
type Xattr struct {
	Name  string
	Value []byte
}

// Node is what a tree knows of one inode. Values are immutable once given to or taken from a tree: slices in it
// are shared and never written.
type Node struct {
	Ino  uint64
	Mode uint32 // S_IFMT bits and permission bits
	// Nlink counts names; a directory has 2 + its subdirectories. Derived, not in the identity.
	Nlink uint32
	UID   uint32
	GID   uint32
	Rdev  uint32 // Linux's new_encode_dev form; devices only
	Size  int64  // bytes; files and symlinks; 0 otherwise
	Mtime Time
	Ctime Time
	Btime Time
	// Parent is the directory's parent (Root's is Root); 0 for anything but a directory. Derived, not in the identity.
	Parent uint64
	// Content names a file's bytes or a symlink's target. An empty file has the empty blob's id.
	Content content.ID
	// Gitlink is the raw commit id (20 or 32 bytes) that a submodule's directory carries, else nil.
	Gitlink []byte
	// Xattrs are sorted by name, names unique; nil when there are none.
	Xattrs []Xattr
}

// Dirent is one name in a directory.
type Dirent struct {
	Name string // 1..255 bytes, no '/' and no NUL; any encoding
	Ino  uint64
	Pos  uint64 // readdir position of this entry; see NewPos
	Type uint8  // DT_*: S_IFMT >> 12
}

// Tree is one immutable tree of inodes: a checkpoint, or a fork at one instant. Safe for concurrent use. Whatever
// can't be read or is not well formed is an error (EIO at the kernel's edge), never a wrong or shorter answer.
type Tree interface {
	// Node returns an inode, or ErrNotExist.
	Node(ino uint64) (Node, error)
	// Lookup returns the entry called name in directory dir, or ErrNotExist.
	Lookup(dir uint64, name string) (Dirent, error)
	// ReadDir yields the entries of dir with Pos > after, by ascending Pos, until yield returns false. "." and ".."
	// are not yielded.
	ReadDir(dir, after uint64, yield func(Dirent) bool) error
	// NumEntries counts dir's entries.
	NumEntries(dir uint64) (int, error)
	// NextIno is greater than every inode number that was ever used in this tree or its ancestors.
	NextIno() uint64
	// Counts returns the number of inodes and the sum of the files' sizes (statfs, accounting).
	Counts() (inodes uint64, bytes uint64)
}

// Files is a tree whose contents can be read: the input of exports, diffs and seals.
type Files interface {
	Tree
	// OpenFile opens a file's or symlink's bytes (n.Size of them). n comes from this tree.
	OpenFile(n Node) (content.Reader, error)
}
