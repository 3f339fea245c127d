package overlay

import (
	"golang.org/x/sys/unix"

	"tine/overlay/journal"
	"tine/snapshot/image"
)

// Rename moves a name. flags are those of renameat2: 0, RENAME_NOREPLACE, RENAME_EXCHANGE; others are EINVAL.
func (f *Fork) Rename(c Caller, oldDir uint64, oldName string, newDir uint64, newName string, flags uint32) error {
	_, err := f.change(&c, func(w *writer) (Attr, error) {
		return Attr{}, w.rename(&c, oldDir, oldName, newDir, newName, flags)
	})
	return err
}

// move is a rename being planned: what lies at both names.
type move struct {
	oldDir, newDir   uint64
	oldName, newName string
	from, to         *dirent // to is nil if newName doesn't exist
	op, np           *node   // the directories
	src, dst         *node
}

func (w *writer) rename(c *Caller, oldDir uint64, oldName string, newDir uint64, newName string, flags uint32) error {
	if flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 || flags == unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE {
		return unix.EINVAL
	}
	m := move{oldDir: oldDir, newDir: newDir, oldName: oldName, newName: newName}
	if err := w.findMove(&m); err != nil {
		return err
	}
	switch {
	case flags == unix.RENAME_NOREPLACE && m.to != nil:
		return unix.EEXIST
	case flags == unix.RENAME_EXCHANGE && m.to == nil:
		return unix.ENOENT
	case m.to != nil && m.to.ino == m.from.ino:
		return nil // two names of one inode: both stay
	}
	if err := w.checkMove(&m, flags == unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	if flags == unix.RENAME_EXCHANGE {
		w.planExchange(&m)
	} else {
		w.planMove(&m)
	}
	if err := w.commit(c, 0); err != nil {
		return err
	}
	w.event(c, Event{Dir: oldDir, Name: oldName})
	w.event(c, Event{Dir: newDir, Name: newName})
	w.event(c, Event{Ino: m.from.ino})
	return nil
}

func (w *writer) findMove(m *move) (err error) {
	if err = checkName(m.oldName); err != nil {
		return err
	}
	if err = checkName(m.newName); err != nil {
		return err
	}
	if m.op, err = w.dirFor(m.oldDir); err != nil {
		return err
	}
	if m.np, err = w.dirFor(m.newDir); err != nil {
		return err
	}
	if m.from, err = w.s.entry(m.oldDir, m.oldName); err != nil {
		return err
	}
	if m.from == nil {
		return unix.ENOENT
	}
	if m.to, err = w.s.entry(m.newDir, m.newName); err != nil {
		return err
	}
	if m.src, err = w.s.node(m.from.ino); err != nil {
		return err
	}
	if m.to != nil {
		m.dst, err = w.s.node(m.to.ino)
	}
	return err
}

func (w *writer) checkMove(m *move, exchange bool) error {
	// A directory must not get into itself, from either side.
	if m.src.isDir() && m.oldDir != m.newDir {
		if in, err := w.within(m.newDir, m.from.ino); err != nil {
			return err
		} else if in {
			return unix.EINVAL
		}
	}
	if m.to == nil {
		return nil
	}
	if exchange {
		if m.dst.isDir() && m.oldDir != m.newDir {
			if in, err := w.within(m.oldDir, m.to.ino); err != nil {
				return err
			} else if in {
				return unix.EINVAL
			}
		}
		return nil
	}
	switch {
	case m.src.isDir() && !m.dst.isDir():
		return unix.ENOTDIR
	case !m.src.isDir() && m.dst.isDir():
		return unix.EISDIR
	case m.dst.isDir():
		return w.mustBeEmpty(m.dst)
	}
	return nil
}

// within reports whether directory dir is top or below it.
func (w *writer) within(dir, top uint64) (bool, error) {
	for dir != top {
		if dir == image.Root {
			return false, nil
		}
		n, err := w.s.node(dir)
		if err != nil {
			return false, err
		}
		dir = n.parent
	}
	return true, nil
}

// planMove: the entry at newName keeps its readdir position when it is replaced.
func (w *writer) planMove(m *move) {
	e := w.rec.Add(journal.Unlink)
	e.Dir, e.Name = m.oldDir, m.oldName
	pos := nextPos(m.np)
	if m.to != nil {
		pos = m.to.pos
		w.freeing = true
	}
	w.link(m.newDir, m.newName, m.from.ino, m.src.dtype(), pos)

	e = w.touch(m.from.ino, journal.MaskCtimeNow)
	if m.src.isDir() && m.oldDir != m.newDir {
		e.Mask |= journal.MaskParent
		e.Parent = m.newDir
	}
	oldLinks, newLinks := m.op.nlink, m.np.nlink
	if m.src.isDir() {
		oldLinks--
		newLinks++
	}
	if m.to != nil {
		e = w.touch(m.to.ino, journal.MaskNlink|journal.MaskCtimeNow)
		if m.dst.isDir() {
			newLinks-- // and e.Nlink is 0
		} else {
			e.Nlink = m.dst.nlink - 1
		}
	}
	if m.oldDir == m.newDir {
		// newLinks counts from the same start: the moved directory left and came back.
		if m.src.isDir() {
			newLinks--
		}
		w.touchLinks(m.newDir, m.np.nlink, newLinks)
		return
	}
	w.touchLinks(m.oldDir, m.op.nlink, oldLinks)
	w.touchLinks(m.newDir, m.np.nlink, newLinks)
}

// touchLinks touches a directory whose number of subdirectories may have changed.
func (w *writer) touchLinks(dir uint64, was, is uint32) {
	e := w.touch(dir, touchDir)
	if was != is {
		e.Mask |= journal.MaskNlink
		e.Nlink = is
	}
}

// planExchange: each entry keeps its position and gets the other's inode.
func (w *writer) planExchange(m *move) {
	w.link(m.oldDir, m.oldName, m.to.ino, m.dst.dtype(), m.from.pos)
	w.link(m.newDir, m.newName, m.from.ino, m.src.dtype(), m.to.pos)
	a := w.touch(m.from.ino, journal.MaskCtimeNow)
	b := w.touch(m.to.ino, journal.MaskCtimeNow)
	a = &w.rec.Effects[len(w.rec.Effects)-2] // Add may have moved it
	if m.oldDir == m.newDir {
		w.touch(m.oldDir, touchDir)
		return
	}
	oldLinks, newLinks := m.op.nlink, m.np.nlink
	if m.src.isDir() {
		a.Mask |= journal.MaskParent
		a.Parent = m.newDir
		oldLinks--
		newLinks++
	}
	if m.dst.isDir() {
		b.Mask |= journal.MaskParent
		b.Parent = m.oldDir
		oldLinks++
		newLinks--
	}
	w.touchLinks(m.oldDir, m.op.nlink, oldLinks)
	w.touchLinks(m.newDir, m.np.nlink, newLinks)
}
