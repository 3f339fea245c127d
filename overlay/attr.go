package overlay

import (
	"golang.org/x/sys/unix"

	"tine/overlay/journal"
	"tine/snapshot/image"
)

// Bits of SetAttr.Valid.
const (
	SetMode uint32 = 1 << iota
	SetUID
	SetGID
	SetSize
	SetAtime
	SetMtime
	SetAtimeNow
	SetMtimeNow
	SetCtime
)

// SetAttr says which attributes to set, and to what. Valid 0 is chown(-1, -1): nothing but ctime changes, and what a
// chown clears is cleared.
type SetAttr struct {
	Valid uint32
	Mode  uint32 // permission bits; the type stays
	UID   uint32
	GID   uint32
	Size  int64
	Atime image.Time
	Mtime image.Time
	Ctime image.Time
	// KillSuidgid: with SetSize, clear suid and sgid (the caller has no CAP_FSETID).
	KillSuidgid bool
}

// maxSize is the largest file: ext4's with 4 KiB blocks.
const maxSize = 1<<44 - pageSize

// xattrCaps is dropped by whatever changes a file's contents or owner.
const xattrCaps = "security.capability"

// Setattr changes attributes; permissions have been checked by the kernel.
func (f *Fork) Setattr(c Caller, ino uint64, s SetAttr) (Attr, error) {
	return f.change(&c, func(w *writer) (Attr, error) { return w.setattr(&c, ino, &s) })
}

func (w *writer) setattr(c *Caller, ino uint64, s *SetAttr) (Attr, error) {
	n, err := w.s.node(ino)
	if err != nil {
		return Attr{}, err
	}
	chown := s.Valid&(SetUID|SetGID) != 0 || s.Valid == 0
	mode := n.mode
	if s.Valid&SetMode != 0 {
		mode = n.mode&unix.S_IFMT | s.Mode&07777
	}
	if s.Valid&SetSize != 0 {
		if err := w.planSize(n, s.Size); err != nil {
			return Attr{}, err
		}
		if s.KillSuidgid {
			mode = w.killed(c, n, mode)
		}
	}
	e := w.touch(ino, journal.MaskCtimeNow)
	if s.Valid&SetUID != 0 {
		e.Mask |= journal.MaskUID
		e.UID = w.f.owners.storedUID(s.UID)
	}
	if s.Valid&SetGID != 0 {
		e.Mask |= journal.MaskGID
		e.GID = w.f.owners.storedGID(s.GID)
	}
	if chown && !n.isDir() && s.Valid&SetMode == 0 {
		// As chown(2): suid always, sgid where the group may execute (else it means mandatory locking) or the caller
		// is not of the group.
		mode = w.killed(c, n, mode)
	}
	if mode != n.mode {
		e.Mask |= journal.MaskMode
		e.Mode = mode &^ unix.S_IFMT
	}
	w.setTimes(e, s)
	if s.Valid&SetMode != 0 && mode&0777 != n.mode&0777 {
		w.planChmodACL(n, mode)
	}
	if (chown || s.Valid&SetSize != 0) && !n.isDir() {
		w.planDropCaps(n)
	}
	if err := w.commit(c, ino); err != nil {
		return Attr{}, err
	}
	w.event(c, Event{Ino: ino})
	if n, err = w.s.node(ino); err != nil {
		return Attr{}, err
	}
	return w.f.attrOf(n), nil
}

func (w *writer) setTimes(e *journal.Effect, s *SetAttr) {
	switch {
	case s.Valid&SetAtimeNow != 0:
		e.Mask |= journal.MaskAtime
		e.Atime = w.rec.Time
	case s.Valid&SetAtime != 0:
		e.Mask |= journal.MaskAtime
		e.Atime = s.Atime
	}
	switch {
	case s.Valid&SetMtimeNow != 0:
		e.Mask |= journal.MaskMtimeNow
	case s.Valid&SetMtime != 0:
		e.Mask |= journal.MaskMtime
		e.Mtime = s.Mtime
	}
	if s.Valid&SetCtime != 0 {
		e.Mask = e.Mask&^journal.MaskCtimeNow | journal.MaskCtime
		e.Ctime = s.Ctime
	}
}

// planSize plans a truncate; it always touches mtime and ctime, as ext4 does.
func (w *writer) planSize(n *node, size int64) error {
	switch {
	case n.isDir():
		return unix.EISDIR
	case !n.isReg() || size < 0:
		return unix.EINVAL
	case size > maxSize:
		return unix.EFBIG
	}
	w.freeing = size < n.size
	e := w.rec.Add(journal.Size)
	e.Ino, e.Len, e.Flags = n.ino, size, journal.FlagTouch
	return nil
}

// killed is mode without suid, and without sgid where that means a change of group.
func (w *writer) killed(c *Caller, n *node, mode uint32) uint32 {
	mode &^= unix.S_ISUID
	if mode&unix.S_ISGID != 0 && (mode&unix.S_IXGRP != 0 || c.UID != 0 && !c.inGroup(w.f.owners.shownGID(n.gid))) {
		mode &^= unix.S_ISGID
	}
	return mode
}

// planKill clears what a change of contents clears: capabilities always, suid and sgid if kill is set.
func (w *writer) planKill(c *Caller, n *node, kill bool) {
	if kill && n.mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		if mode := w.killed(c, n, n.mode); mode != n.mode {
			e := w.touch(n.ino, journal.MaskMode)
			e.Mode = mode &^ unix.S_IFMT
		}
	}
	w.planDropCaps(n)
}

func (w *writer) planDropCaps(n *node) {
	if len(n.xattrs) == 0 {
		return
	}
	if _, ok := findXattr(n.xattrs, xattrCaps); ok {
		e := w.rec.Add(journal.DelXattr)
		e.Ino, e.Name = n.ino, xattrCaps
	}
}

// planChmodACL keeps an access ACL in step with the mode.
func (w *writer) planChmodACL(n *node, mode uint32) {
	v, ok := xattrValue(n.xattrs, aclAccess)
	if !ok {
		return
	}
	list, err := parseACL(v)
	if err != nil || len(list) == 0 {
		return
	}
	chmodACL(list, mode)
	e := w.rec.Add(journal.SetXattr)
	e.Ino, e.Name, e.Data = n.ino, aclAccess, encodeACL(list)
}
