package diff

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"tine/snapshot/content"
	"tine/snapshot/image"
)

// Status says what happened to a path.
type Status byte

const (
	Added    Status = 'A'
	Deleted  Status = 'D'
	Modified Status = 'M'
	// TypeChanged: a file became a symlink, a directory a file, ...
	TypeChanged Status = 'T'
	// Renamed: Change.From is the old path. Directories are never renamed, only what is in them.
	Renamed Status = 'R'
	// Linked: a new name of a file that was there, or of a new one that is listed with another name; Change.From is one.
	Linked Status = 'H'
)

// Change is one path that differs.
type Change struct {
	Status Status
	Path   string
	From   string // for Renamed and Linked
	// Old and New are the path's inodes (the inode's, for Renamed and Linked); zero for Added and Deleted on one side.
	Old, New image.Node
	// What differs, for Modified, TypeChanged and Renamed.
	What What
	// Count is how many changes this one stands for (CollapseGit), else 0.
	Count int
}

// What is a set of attributes.
type What uint16

const (
	Content What = 1 << iota
	Mode         // permission bits
	Owner
	Xattrs
	Target // of a symlink
	Device // number
	Times  // modification time
	Gitlink
)

var whatNames = [...]string{"content", "mode", "owner", "xattrs", "target", "device", "times", "gitlink"}

// Names lists the attributes in the set.
func (w What) Names() []string {
	var names []string
	for i, name := range whatNames {
		if w&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Bits of a node's mode (S_IFMT and types).
const (
	modeType    = 0o170000
	modeSymlink = 0o120000
	modeRegular = 0o100000
	modeBlock   = 0o060000
	modeDir     = 0o040000
	modeChar    = 0o020000
)

// IsDir reports whether the change is about a directory on the side that exists.
func (c *Change) IsDir() bool {
	n := &c.New
	if c.Status == Deleted {
		n = &c.Old
	}
	return n.Mode&modeType == modeDir
}

// TimesOnly reports whether nothing but times differs.
func (c *Change) TimesOnly() bool { return c.Status == Modified && c.What == Times }

// Options are how trees are compared.
type Options struct {
	// Changed, where it is known, reports whether an inode that both trees have may differ. Nil compares all.
	Changed func(ino uint64) bool
}

// Trees compares two trees and returns what changed from a to b, by path.
func Trees(ctx context.Context, a, b image.Files, opt Options) ([]Change, error) {
	d := &differ{ctx: ctx, a: a, b: b, opt: opt, removed: map[uint64][]int{}, old: map[uint64]string{}}
	ra, err := a.Node(image.Root)
	if err != nil {
		return nil, err
	}
	rb, err := b.Node(image.Root)
	if err != nil {
		return nil, err
	}
	if err := d.dir("", &ra, &rb); err != nil {
		return nil, err
	}
	if err := d.pair(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(d.changes, func(x, y Change) int { return cmp.Compare(x.Path, y.Path) })
	return d.changes, nil
}

type differ struct {
	ctx     context.Context
	a, b    image.Files
	opt     Options
	changes []Change
	removed map[uint64][]int  // inode → changes that are Deleted, directories apart
	old     map[uint64]string // inode with several names → one that both trees have
}

func entries(t image.Tree, dir *image.Node) ([]image.Dirent, error) {
	if dir == nil {
		return nil, nil
	}
	var list []image.Dirent
	if err := t.ReadDir(dir.Ino, 0, func(e image.Dirent) bool { list = append(list, e); return true }); err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(x, y image.Dirent) int { return cmp.Compare(x.Name, y.Name) })
	return list, nil
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// dir compares a directory of both trees, or lists all of one that only one tree has.
func (d *differ) dir(path string, a, b *image.Node) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	la, err := entries(d.a, a)
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	lb, err := entries(d.b, b)
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	if a != nil && b != nil {
		d.dirItself(path, a, b, la, lb)
	}
	for len(la) > 0 || len(lb) > 0 {
		c := 0
		switch {
		case len(la) == 0:
			c = 1
		case len(lb) == 0:
			c = -1
		default:
			c = cmp.Compare(la[0].Name, lb[0].Name)
		}
		var ea, eb *image.Dirent
		if c <= 0 {
			ea, la = &la[0], la[1:]
		}
		if c >= 0 {
			eb, lb = &lb[0], lb[1:]
		}
		if err := d.entry(path, ea, eb); err != nil {
			return err
		}
	}
	return nil
}

// dirItself compares the attributes of a directory. Its times change with its entries; only where these are the same do they
// count for themselves.
func (d *differ) dirItself(path string, a, b *image.Node, la, lb []image.Dirent) {
	same := slices.EqualFunc(la, lb, func(x, y image.Dirent) bool { return x.Name == y.Name && x.Ino == y.Ino })
	what := attributes(a, b)
	if !same {
		what &^= Times
	}
	if !bytes.Equal(a.Gitlink, b.Gitlink) || a.Gitlink != nil && (len(la) == 0) != (len(lb) == 0) {
		what |= Gitlink
	}
	if what != 0 {
		d.changes = append(d.changes, Change{Status: Modified, Path: path, Old: *a, New: *b, What: what})
	}
}

func (d *differ) entry(dir string, ea, eb *image.Dirent) error {
	var a, b *image.Node
	var path string
	if ea != nil {
		path = join(dir, ea.Name)
	} else {
		path = join(dir, eb.Name)
	}
	isDir := func(e *image.Dirent) bool { return e != nil && e.Type == modeDir>>12 }
	if ea != nil && eb != nil && ea.Ino == eb.Ino && ea.Type == eb.Type && !isDir(ea) && d.opt.Changed != nil && !d.opt.Changed(ea.Ino) {
		return nil
	}
	for _, side := range []struct {
		t image.Tree
		e *image.Dirent
		n **image.Node
	}{{d.a, ea, &a}, {d.b, eb, &b}} {
		if side.e == nil {
			continue
		}
		n, err := side.t.Node(side.e.Ino)
		if err != nil {
			return fmt.Errorf("%q: %w", path, err)
		}
		*side.n = &n
	}
	if a != nil && b != nil && a.Mode&modeType == b.Mode&modeType {
		return d.both(path, a, b)
	}
	switch {
	case a != nil && b != nil:
		d.changes = append(d.changes, Change{Status: TypeChanged, Path: path, Old: *a, New: *b, What: attributes(a, b)})
	case a != nil:
		if a.Mode&modeType != modeDir {
			d.removed[a.Ino] = append(d.removed[a.Ino], len(d.changes))
		}
		d.changes = append(d.changes, Change{Status: Deleted, Path: path, Old: *a})
	case b != nil:
		d.changes = append(d.changes, Change{Status: Added, Path: path, New: *b})
	}
	// What is in a directory that one tree doesn't have.
	if a != nil && a.Mode&modeType == modeDir {
		if err := d.dir(path, a, nil); err != nil {
			return err
		}
	}
	if b != nil && b.Mode&modeType == modeDir {
		return d.dir(path, nil, b)
	}
	return nil
}

func (d *differ) both(path string, a, b *image.Node) error {
	if a.Mode&modeType == modeDir {
		return d.dir(path, a, b)
	}
	if a.Ino == b.Ino && (a.Nlink > 1 || b.Nlink > 1) {
		d.old[a.Ino] = path
	}
	what, err := d.compare(a, b)
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	if what != 0 {
		d.changes = append(d.changes, Change{Status: Modified, Path: path, Old: *a, New: *b, What: what})
	}
	return nil
}

// attributes compares what a node has whatever its type.
func attributes(a, b *image.Node) (what What) {
	if (a.Mode^b.Mode)&0o7777 != 0 {
		what |= Mode
	}
	if a.UID != b.UID || a.GID != b.GID {
		what |= Owner
	}
	if a.Mtime != b.Mtime {
		what |= Times
	}
	if !slices.EqualFunc(a.Xattrs, b.Xattrs, func(x, y image.Xattr) bool { return x.Name == y.Name && bytes.Equal(x.Value, y.Value) }) {
		what |= Xattrs
	}
	return what
}

// compare compares two nodes of one type, directories apart.
func (d *differ) compare(a, b *image.Node) (what What, err error) {
	what = attributes(a, b)
	switch a.Mode & modeType {
	case modeRegular, modeSymlink:
		same, err := d.sameContent(a, b)
		if err != nil {
			return 0, err
		}
		if !same && a.Mode&modeType == modeSymlink {
			what |= Target
		} else if !same {
			what |= Content
		}
	case modeChar, modeBlock:
		if a.Rdev != b.Rdev {
			what |= Device
		}
	}
	return what, nil
}

// sameContent compares bytes where ids don't tell: a fork's changed files have none, and one content may have ids of
// different algorithms.
func (d *differ) sameContent(a, b *image.Node) (bool, error) {
	if a.Size != b.Size {
		return false, nil
	}
	if !a.Content.IsZero() && a.Content.Algo == b.Content.Algo {
		return a.Content == b.Content, nil
	}
	ra, err := d.a.OpenFile(*a)
	if err != nil {
		return false, err
	}
	defer ra.Close()
	rb, err := d.b.OpenFile(*b)
	if err != nil {
		return false, err
	}
	defer rb.Close()
	ba, bb := make([]byte, 256<<10), make([]byte, 256<<10)
	for off := int64(0); off < a.Size; off += int64(len(ba)) {
		n := min(int64(len(ba)), a.Size-off)
		if err := content.ReadFull(ra, ba[:n], off); err != nil {
			return false, err
		}
		if err := content.ReadFull(rb, bb[:n], off); err != nil {
			return false, err
		}
		if !bytes.Equal(ba[:n], bb[:n]) {
			return false, d.ctx.Err()
		}
	}
	return true, nil
}

// pair finds renames and links among the added paths.
func (d *differ) pair() error {
	gone := map[int]bool{} // deletions that became renames
	fresh := map[uint64]string{}
	for i := range d.changes {
		c := &d.changes[i]
		if c.Status != Added || c.IsDir() {
			continue
		}
		if from := d.removed[c.New.Ino]; len(from) > 0 && sameFile(&d.changes[from[0]].Old, &c.New) {
			old := &d.changes[from[0]]
			what, err := d.compare(&old.Old, &c.New)
			if err != nil {
				return fmt.Errorf("%q: %w", c.Path, err)
			}
			d.removed[c.New.Ino] = from[1:]
			gone[from[0]] = true
			c.Status, c.From, c.Old, c.What = Renamed, old.Path, old.Old, what
		} else if from, ok := d.old[c.New.Ino]; ok {
			c.Status, c.From = Linked, from
		} else if from, ok := fresh[c.New.Ino]; ok {
			c.Status, c.From = Linked, from
		}
		if c.New.Nlink > 1 && fresh[c.New.Ino] == "" {
			fresh[c.New.Ino] = c.Path
		}
	}
	kept := d.changes[:0]
	for i, c := range d.changes {
		if !gone[i] {
			kept = append(kept, c)
		}
	}
	d.changes = kept
	return nil
}

// sameFile: inode numbers are kept from checkpoint to fork to checkpoint, but those of unrelated trees mean nothing to
// each other. An inode that was the same file still has its birth time, or its content.
func sameFile(a, b *image.Node) bool {
	return a.Mode&modeType == b.Mode&modeType && (a.Btime == b.Btime || !a.Content.IsZero() && a.Content == b.Content)
}

// CollapseGit replaces changes in the top .git by one that counts them. It differs in Times if they all do in nothing else.
func CollapseGit(changes []Change) []Change {
	var out []Change
	at, timesOnly := -1, true
	for _, c := range changes {
		if !InGit(c.Path) && !(c.Status == Renamed && InGit(c.From)) {
			out = append(out, c)
			continue
		}
		timesOnly = timesOnly && c.TimesOnly()
		if at < 0 {
			at = len(out)
			c = Change{Status: Modified, Path: ".git", Old: c.Old, New: c.New}
			out = append(out, c)
		}
		out[at].Count++
	}
	if at >= 0 && timesOnly {
		out[at].What = Times
	}
	return out
}

// InGit reports whether path is the top .git or in it.
func InGit(path string) bool {
	return path == ".git" || len(path) > 5 && path[:5] == ".git/"
}
