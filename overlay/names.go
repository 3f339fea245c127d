package overlay

import (
	"golang.org/x/sys/unix"

	"tine/overlay/journal"
)

// dirFor returns a directory in which names may change.
func (w *writer) dirFor(dir uint64) (*node, error) {
	n, err := w.s.node(dir)
	if err != nil {
		return nil, err
	}
	if !n.isDir() {
		return nil, unix.ENOTDIR
	}
	if n.nlink == 0 {
		return nil, unix.ENOENT // removed, but somebody is still in it
	}
	return n, nil
}

// newNode plans an inode, with owner, mode and ACLs as the directory gives them, and its name unless name is empty.
func (w *writer) newNode(c *Caller, dir uint64, name string, mode, rdev uint32, target string) (Attr, error) {
	if name != "" {
		if err := checkName(name); err != nil {
			return Attr{}, err
		}
	}
	d, err := w.dirFor(dir)
	if err != nil {
		return Attr{}, err
	}
	if name != "" {
		old, err := w.s.entry(dir, name)
		if err != nil {
			return Attr{}, err
		}
		if old != nil {
			return Attr{}, unix.EEXIST
		}
	}
	if err := w.checkInodes(); err != nil {
		return Attr{}, err
	}
	ino := w.s.nextIno
	isDir := mode&unix.S_IFMT == unix.S_IFDIR
	gid := w.f.owners.storedGID(c.GID)
	if d.mode&unix.S_ISGID != 0 {
		gid = d.gid
		if isDir {
			mode |= unix.S_ISGID
		}
	}
	acls, mode := inheritACL(d, mode, c.Umask)
	e := w.rec.Add(journal.New)
	e.Ino, e.Mode, e.UID, e.GID, e.Rdev, e.Nlink = ino, mode, w.f.owners.storedUID(c.UID), gid, rdev, 1
	if isDir {
		e.Nlink, e.Parent = 2, dir
	}
	if name == "" {
		e.Nlink = 0
	}
	if target != "" {
		e.Data = []byte(target)
	}
	for _, x := range acls {
		a := w.rec.Add(journal.SetXattr)
		a.Ino, a.Name, a.Data = ino, x.Name, x.Value
	}
	if name != "" {
		w.link(dir, name, ino, uint8(mode&unix.S_IFMT>>12), nextPos(d))
		t := w.touch(dir, touchDir)
		if isDir {
			t.Mask |= journal.MaskNlink
			t.Nlink = d.nlink + 1
		}
	}
	if err := w.commit(c, ino); err != nil {
		return Attr{}, err
	}
	if name != "" {
		w.event(c, Event{Dir: dir, Name: name})
	}
	n, err := w.s.node(ino)
	if err != nil {
		return Attr{}, err
	}
	return w.f.attrOf(n), nil
}

func (w *writer) link(dir uint64, name string, ino uint64, typ uint8, pos uint64) {
	e := w.rec.Add(journal.Link)
	e.Dir, e.Name, e.Ino, e.Type, e.Pos = dir, name, ino, typ, pos
}

// Create makes a regular file. If the name exists it returns that file (EEXIST with excl, EISDIR for a directory);
// truncating it is the caller's (Setattr).
func (f *Fork) Create(c Caller, dir uint64, name string, mode uint32, excl bool) (Attr, error) {
	return f.change(&c, func(w *writer) (Attr, error) { return w.create(&c, dir, name, mode, excl) })
}

func (w *writer) create(c *Caller, dir uint64, name string, mode uint32, excl bool) (Attr, error) {
	a, err := w.newNode(c, dir, name, unix.S_IFREG|mode&07777, 0, "")
	if err != unix.EEXIST || excl {
		return a, err
	}
	old, err := w.s.entry(dir, name)
	if err != nil || old == nil {
		return Attr{}, err
	}
	n, err := w.s.node(old.ino)
	if err != nil {
		return Attr{}, err
	}
	if n.isDir() {
		return Attr{}, unix.EISDIR
	}
	return w.f.attrOf(n), nil
}

// Mknod makes an inode of any type but directory and symlink; mode has its S_IFMT bits, none means a regular file.
func (f *Fork) Mknod(c Caller, dir uint64, name string, mode, rdev uint32) (Attr, error) {
	return f.change(&c, func(w *writer) (Attr, error) { return w.mknod(&c, dir, name, mode, rdev) })
}

func (w *writer) mknod(c *Caller, dir uint64, name string, mode, rdev uint32) (Attr, error) {
	switch mode & unix.S_IFMT {
	case 0:
		mode |= unix.S_IFREG
		rdev = 0
	case unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK:
		rdev = 0
	case unix.S_IFCHR, unix.S_IFBLK:
	case unix.S_IFDIR:
		return Attr{}, unix.EPERM
	default:
		return Attr{}, unix.EINVAL
	}
	return w.newNode(c, dir, name, mode&(unix.S_IFMT|07777), rdev, "")
}

// Mkdir makes a directory.
func (f *Fork) Mkdir(c Caller, dir uint64, name string, mode uint32) (Attr, error) {
	return f.change(&c, func(w *writer) (Attr, error) { return w.mkdir(&c, dir, name, mode) })
}

func (w *writer) mkdir(c *Caller, dir uint64, name string, mode uint32) (Attr, error) {
	// As ext4: only the permission and sticky bits count; S_ISGID comes from the parent.
	return w.newNode(c, dir, name, unix.S_IFDIR|mode&01777, 0, "")
}

// maxTarget bounds a symlink's target, in bytes: PATH_MAX without its NUL.
const maxTarget = 4095

// Symlink makes a symlink.
func (f *Fork) Symlink(c Caller, dir uint64, name, target string) (Attr, error) {
	return f.change(&c, func(w *writer) (Attr, error) { return w.symlink(&c, dir, name, target) })
}

func (w *writer) symlink(c *Caller, dir uint64, name, target string) (Attr, error) {
	if target == "" {
		return Attr{}, unix.ENOENT
	}
	if len(target) > maxTarget {
		return Attr{}, unix.ENAMETOOLONG
	}
	return w.newNode(c, dir, name, unix.S_IFLNK|0777, 0, target)
}

// Tmpfile makes a regular file without a name in dir's file system; Link may name it later.
func (f *Fork) Tmpfile(c Caller, dir uint64, mode uint32) (Attr, error) {
	return f.change(&c, func(w *writer) (Attr, error) {
		return w.newNode(&c, dir, "", unix.S_IFREG|mode&07777, 0, "")
	})
}

// maxLinks is the number of names a file can have: what st_nlink holds. There is no EMLINK before it.
const maxLinks = 1<<32 - 2

// Link gives an inode another name.
func (f *Fork) Link(c Caller, ino, dir uint64, name string) (Attr, error) {
	return f.change(&c, func(w *writer) (Attr, error) { return w.hardlink(&c, ino, dir, name) })
}

func (w *writer) hardlink(c *Caller, ino, dir uint64, name string) (Attr, error) {
	if err := checkName(name); err != nil {
		return Attr{}, err
	}
	d, err := w.dirFor(dir)
	if err != nil {
		return Attr{}, err
	}
	n, err := w.s.node(ino)
	if err != nil {
		return Attr{}, err
	}
	switch {
	case n.isDir():
		return Attr{}, unix.EPERM
	case n.nlink == 0 && n.flags&nodeLinkable == 0:
		return Attr{}, unix.ENOENT
	case n.nlink >= maxLinks:
		return Attr{}, unix.EMLINK
	}
	old, err := w.s.entry(dir, name)
	if err != nil {
		return Attr{}, err
	}
	if old != nil {
		return Attr{}, unix.EEXIST
	}
	w.link(dir, name, ino, n.dtype(), nextPos(d))
	e := w.touch(ino, journal.MaskNlink|journal.MaskCtimeNow)
	e.Nlink = n.nlink + 1
	w.touch(dir, touchDir)
	if err := w.commit(c, ino); err != nil {
		return Attr{}, err
	}
	w.event(c, Event{Dir: dir, Name: name})
	w.event(c, Event{Ino: ino})
	if n, err = w.s.node(ino); err != nil {
		return Attr{}, err
	}
	return w.f.attrOf(n), nil
}

// Unlink removes a name that is no directory. The inode lives on without a name until Forget, if it was its last.
func (f *Fork) Unlink(c Caller, dir uint64, name string) error {
	_, err := f.change(&c, func(w *writer) (Attr, error) { return Attr{}, w.unlink(&c, dir, name) })
	return err
}

func (w *writer) unlink(c *Caller, dir uint64, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if _, err := w.dirFor(dir); err != nil {
		return err
	}
	d, err := w.s.entry(dir, name)
	if err != nil {
		return err
	}
	if d == nil {
		return unix.ENOENT
	}
	n, err := w.s.node(d.ino)
	if err != nil {
		return err
	}
	if n.isDir() {
		return unix.EISDIR
	}
	w.freeing = true
	e := w.rec.Add(journal.Unlink)
	e.Dir, e.Name = dir, name
	e = w.touch(d.ino, journal.MaskNlink|journal.MaskCtimeNow)
	e.Nlink = n.nlink - 1
	w.touch(dir, touchDir)
	if err := w.commit(c, 0); err != nil {
		return err
	}
	w.event(c, Event{Dir: dir, Name: name})
	if e.Nlink > 0 {
		w.event(c, Event{Ino: d.ino})
	}
	return nil
}

// Rmdir removes an empty directory.
func (f *Fork) Rmdir(c Caller, dir uint64, name string) error {
	_, err := f.change(&c, func(w *writer) (Attr, error) { return Attr{}, w.rmdir(&c, dir, name) })
	return err
}

func (w *writer) rmdir(c *Caller, dir uint64, name string) error {
	switch name {
	case ".":
		return unix.EINVAL
	case "..":
		return unix.ENOTEMPTY
	}
	if err := checkName(name); err != nil {
		return err
	}
	p, err := w.dirFor(dir)
	if err != nil {
		return err
	}
	d, err := w.s.entry(dir, name)
	if err != nil {
		return err
	}
	if d == nil {
		return unix.ENOENT
	}
	n, err := w.s.node(d.ino)
	if err != nil {
		return err
	}
	if err := w.mustBeEmpty(n); err != nil {
		return err
	}
	w.freeing = true
	e := w.rec.Add(journal.Unlink)
	e.Dir, e.Name = dir, name
	w.touch(d.ino, journal.MaskNlink|journal.MaskCtimeNow) // Nlink 0
	e = w.touch(dir, touchDir|journal.MaskNlink)
	e.Nlink = p.nlink - 1
	if err := w.commit(c, 0); err != nil {
		return err
	}
	w.event(c, Event{Dir: dir, Name: name})
	return nil
}

func (w *writer) mustBeEmpty(n *node) error {
	if !n.isDir() {
		return unix.ENOTDIR
	}
	count, err := w.s.entries(n)
	if err != nil {
		return err
	}
	if count > 0 {
		return unix.ENOTEMPTY
	}
	return nil
}
