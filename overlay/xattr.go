package overlay

import (
	"strings"

	"golang.org/x/sys/unix"

	"tine/overlay/journal"
)

const (
	maxXattrValue = 64 << 10 // bytes; XATTR_SIZE_MAX
	maxXattrList  = 64 << 10 // bytes of all names; XATTR_LIST_MAX
	maxXattrTotal = 256 << 10
)

// checkXattrName accepts the names that ext4 has a handler for.
func checkXattrName(name string) error {
	if len(name) > 255 {
		return unix.ERANGE
	}
	if name == aclAccess || name == aclDefault {
		return nil
	}
	for _, p := range [...]string{"user.", "trusted.", "security."} {
		if strings.HasPrefix(name, p) {
			if len(name) == len(p) {
				return unix.EINVAL
			}
			return nil
		}
	}
	return unix.EOPNOTSUPP
}

func isACL(name string) bool { return name == aclAccess || name == aclDefault }

// Getxattr returns an attribute's value, which the caller must not change. ENODATA if there is none.
func (f *Fork) Getxattr(ino uint64, name string) ([]byte, error) {
	if err := checkXattrName(name); err != nil {
		return nil, err
	}
	f.mu.RLock()
	n, err := f.w.s.node(ino)
	f.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	v, ok := xattrValue(n.xattrs, name)
	if !ok {
		return nil, unix.ENODATA
	}
	if isACL(name) {
		v = f.owners.acl(v)
	}
	return v, nil
}

// Listxattr lists attribute names; trusted ones only for root.
func (f *Fork) Listxattr(c Caller, ino uint64) ([]string, error) {
	f.mu.RLock()
	n, err := f.w.s.node(ino)
	f.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, x := range n.xattrs {
		if c.UID != 0 && strings.HasPrefix(x.Name, "trusted.") {
			continue
		}
		names = append(names, x.Name)
	}
	return names, nil
}

// Setxattr sets an attribute. flags are XATTR_CREATE and XATTR_REPLACE. Setting an access ACL sets the mode, and
// clears sgid when the caller is not of the file's group.
func (f *Fork) Setxattr(c Caller, ino uint64, name string, value []byte, flags uint32) error {
	_, err := f.change(&c, func(w *writer) (Attr, error) { return Attr{}, w.setxattr(&c, ino, name, value, flags) })
	return err
}

func (w *writer) setxattr(c *Caller, ino uint64, name string, value []byte, flags uint32) error {
	if err := checkXattrName(name); err != nil {
		return err
	}
	switch {
	case flags&^(unix.XATTR_CREATE|unix.XATTR_REPLACE) != 0 || flags == unix.XATTR_CREATE|unix.XATTR_REPLACE:
		return unix.EINVAL
	case len(value) > maxXattrValue:
		return unix.E2BIG
	}
	n, err := w.s.node(ino)
	if err != nil {
		return err
	}
	if isACL(name) {
		return w.setACL(c, n, name, value)
	}
	if strings.HasPrefix(name, "user.") && !n.isReg() && !n.isDir() {
		return unix.EPERM
	}
	_, has := findXattr(n.xattrs, name)
	switch {
	case flags == unix.XATTR_CREATE && has:
		return unix.EEXIST
	case flags == unix.XATTR_REPLACE && !has:
		return unix.ENODATA
	}
	names, total := len(name)+1, len(name)+len(value)
	for _, x := range n.xattrs {
		if x.Name != name {
			names += len(x.Name) + 1
			total += len(x.Name) + len(x.Value)
		}
	}
	if names > maxXattrList || total > maxXattrTotal {
		return unix.ENOSPC
	}
	e := w.rec.Add(journal.SetXattr)
	e.Ino, e.Name, e.Data = ino, name, value
	return w.commitXattr(c, ino)
}

func (w *writer) commitXattr(c *Caller, ino uint64) error {
	w.touch(ino, journal.MaskCtimeNow)
	if err := w.commit(c, 0); err != nil {
		return err
	}
	w.event(c, Event{Ino: ino})
	return nil
}

// setACL stores an ACL, or nothing where the mode says it all; an empty one removes it.
func (w *writer) setACL(c *Caller, n *node, name string, value []byte) error {
	if n.isSymlink() {
		return unix.EOPNOTSUPP
	}
	list, err := parseACL(w.f.owners.acl(value))
	if err != nil {
		return err
	}
	_, has := findXattr(n.xattrs, name)
	if name == aclDefault {
		if !n.isDir() {
			if len(list) == 0 {
				return nil
			}
			return unix.EACCES
		}
	} else if len(list) > 0 {
		perm, equivalent := aclMode(list)
		mode := n.mode&07000 | perm
		if mode&unix.S_ISGID != 0 && c.UID != 0 && !c.inGroup(w.f.owners.shownGID(n.gid)) {
			mode &^= unix.S_ISGID
		}
		if mode != n.mode&07777 {
			e := w.touch(n.ino, journal.MaskMode)
			e.Mode = mode
		}
		if equivalent {
			list = nil
		}
	}
	switch {
	case len(list) > 0:
		e := w.rec.Add(journal.SetXattr)
		e.Ino, e.Name, e.Data = n.ino, name, encodeACL(list)
	case has:
		e := w.rec.Add(journal.DelXattr)
		e.Ino, e.Name = n.ino, name
	}
	return w.commitXattr(c, n.ino)
}

// Removexattr removes an attribute. ENODATA if there is none, but 0 for an ACL.
func (f *Fork) Removexattr(c Caller, ino uint64, name string) error {
	_, err := f.change(&c, func(w *writer) (Attr, error) { return Attr{}, w.removexattr(&c, ino, name) })
	return err
}

func (w *writer) removexattr(c *Caller, ino uint64, name string) error {
	if err := checkXattrName(name); err != nil {
		return err
	}
	n, err := w.s.node(ino)
	if err != nil {
		return err
	}
	if _, has := findXattr(n.xattrs, name); !has {
		if isACL(name) {
			return nil
		}
		return unix.ENODATA
	}
	e := w.rec.Add(journal.DelXattr)
	e.Ino, e.Name = ino, name
	return w.commitXattr(c, ino)
}
