package gitimport

import (
	"golang.org/x/sys/unix"

	"tine/snapshot/content"
	"tine/snapshot/gitimport/objects"
	"tine/snapshot/image"
)

// item is one file, symlink or directory of a workspace before it has become a node. Children are in the order in which
// they get their inode numbers, which is a function of the commit and the options alone (L3).
type item struct {
	name    string
	mode    uint32 // S_IFMT and permission bits
	ino     uint64
	size    int64
	mtime   image.Time
	content content.ID
	kind    image.Kind
	blob    objects.ID // of a tracked file; what the index compares with
	gitlink []byte
	kids    []*item
	// hadFiles: a directory of a work tree that was not empty, whatever was taken of it.
	hadFiles bool
}

func newDir(name string, mtime image.Time, kids ...*item) *item {
	return &item{name: name, mode: unix.S_IFDIR | 0o755, mtime: mtime, kids: kids}
}

func (d *item) add(kid *item) *item {
	d.kids = append(d.kids, kid)
	return kid
}

// treeName sorts as git's trees do: a directory as if its name ended in a slash.
func (it *item) treeName() string {
	if it.mode&unix.S_IFMT == unix.S_IFDIR && it.gitlink == nil {
		return it.name + "/"
	}
	return it.name
}

func blobID(id objects.ID) content.ID {
	c := content.ID{Algo: content.GitSHA1}
	copy(c.Digest[:], id[:])
	return c
}

// numbering gives out inode numbers.
type numbering struct{ next uint64 }

// number numbers it and everything below, parents before children.
func (n *numbering) number(it *item) {
	it.ino = n.next
	n.next++
	for _, k := range it.kids {
		n.number(k)
	}
}

// emit adds it and everything below to an image.
func (it *item) emit(b *image.Builder) {
	n := image.Node{
		Ino: it.ino, Mode: it.mode, Size: it.size, Content: it.content, Gitlink: it.gitlink,
		Mtime: it.mtime, Ctime: it.mtime, Btime: it.mtime,
	}
	b.Add(n)
	if it.kind != image.KindNone {
		b.SetKind(it.content, it.kind, [2]uint64{})
	}
	for _, k := range it.kids {
		b.AddEntry(it.ino, k.name, k.ino)
		k.emit(b)
	}
}

// count adds up files and symlinks.
func (it *item) count(files, bytes *int64) {
	switch it.mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFLNK:
		*files++
		*bytes += it.size
	}
	for _, k := range it.kids {
		k.count(files, bytes)
	}
}
