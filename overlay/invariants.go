package overlay

import (
	"fmt"

	"tine/snapshot/image"
)

// CheckInvariants verifies the formulas of the package comment against the whole fork. It reads every directory and
// holds the fork's lock: for tests and fsck.
func (f *Fork) CheckInvariants() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.w.s.check(); err != nil {
		return fmt.Errorf("fork %s: %w", f.cfg.ForkID, err)
	}
	if f.txn {
		return nil
	}
	return f.checkSpace()
}

// CheckInvariants verifies a view.
func (v *View) CheckInvariants() error { return v.s.check() }

type census struct {
	s       *state
	links   map[uint64]uint32 // names found of each inode
	parents map[uint64]uint64
}

func (s *state) check() error {
	c := census{s: s, links: map[uint64]uint32{}, parents: map[uint64]uint64{}}
	if err := c.walk(image.Root, image.Root); err != nil {
		return err
	}
	if err := c.nodes(); err != nil {
		return err
	}
	return c.entries()
}

// walk visits a directory: I1 every entry's inode exists and has the entry's type, I2 a directory has one name, its
// parent is where it is, and its nlink is 2 + its subdirectories, I3 its count is its number of entries.
func (c *census) walk(dir, parent uint64) error {
	n, err := c.s.node(dir)
	if err != nil {
		return fmt.Errorf("directory %d: %w", dir, err)
	}
	if !n.isDir() || n.parent != parent {
		return fmt.Errorf("directory %d: mode %o, parent %d, found in %d", dir, n.mode, n.parent, parent)
	}
	if _, twice := c.parents[dir]; twice {
		return fmt.Errorf("directory %d has two names", dir)
	}
	c.parents[dir] = parent
	count, subdirs := 0, uint32(0)
	var children []image.Dirent
	last := uint64(0)
	seen := map[string]bool{}
	if err := c.s.readDir(dir, 0, func(d Dirent) bool {
		if d.Pos <= last && err == nil {
			err = fmt.Errorf("directory %d: position %d of %q after %d", dir, d.Pos, d.Name, last)
		}
		if seen[d.Name] {
			err = fmt.Errorf("directory %d: %q listed twice", dir, d.Name)
		}
		seen[d.Name] = true
		last = d.Pos
		count++
		children = append(children, d)
		return true
	}); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	for _, d := range children {
		found, err := c.s.entry(dir, d.Name)
		if err != nil || found == nil || found.ino != d.Ino || found.pos != d.Pos {
			return fmt.Errorf("directory %d: %q listed as %+v, looked up as %+v, %v", dir, d.Name, d, found, err)
		}
		child, err := c.s.node(d.Ino)
		if err != nil {
			return fmt.Errorf("entry %q of directory %d: inode %d: %w", d.Name, dir, d.Ino, err)
		}
		if child.dtype() != d.Type {
			return fmt.Errorf("entry %q of directory %d: type %d, inode's %d", d.Name, dir, d.Type, child.dtype())
		}
		c.links[d.Ino]++
		if child.isDir() {
			subdirs++
			if err := c.walk(d.Ino, dir); err != nil {
				return err
			}
		}
	}
	if n.nlink != 2+subdirs {
		return fmt.Errorf("directory %d: nlink %d with %d subdirectories", dir, n.nlink, subdirs)
	}
	if got, err := c.s.entries(n); err != nil || got != count {
		return fmt.Errorf("directory %d: counts %d entries, has %d (%v)", dir, got, count, err)
	}
	return nil
}

// nodes: I4 a changed inode's nlink is its number of names, and 0 exactly for orphans, I5 extents are in order,
// disjoint, within the size where they have bytes, and their sums are right, I6 the state's totals are.
func (c *census) nodes() error {
	s := c.s
	var err error
	inodes, bytes := s.base.Counts()
	total, sizes, own, ownBytes := int64(inodes), int64(bytes), int64(0), int64(0)
	orphans := 0
	s.nodes.Scan(func(ino uint64, n *node) bool {
		if n.ino != ino || n.epoch > s.epoch && n.epoch != 0 {
			err = fmt.Errorf("inode %d: stored as %d, epoch %d in state %d", n.ino, ino, n.epoch, s.epoch)
			return false
		}
		if n.flags&nodeBase != 0 {
			b, berr := s.base.Node(ino)
			if berr != nil {
				err = fmt.Errorf("inode %d: said to be the base's: %w", ino, berr)
				return false
			}
			if n.isReg() {
				sizes -= b.Size
			}
			total--
		} else {
			own++
		}
		if n.flags&nodeGone != 0 {
			if c.links[ino] != 0 {
				err = fmt.Errorf("inode %d is gone and has names", ino)
			}
			return err == nil
		}
		total++
		if n.isReg() {
			sizes += n.size
		}
		ownBytes += n.ownBytes()
		if _, isOrphan := s.orphans[ino]; isOrphan != (n.nlink == 0) {
			err = fmt.Errorf("inode %d: nlink %d, orphan %v", ino, n.nlink, isOrphan)
			return false
		}
		if n.nlink == 0 {
			orphans++
		}
		if !n.isDir() && n.nlink != c.links[ino] {
			err = fmt.Errorf("inode %d: nlink %d with %d names", ino, n.nlink, c.links[ino])
			return false
		}
		err = n.checkExtents()
		return err == nil
	})
	if err != nil {
		return err
	}
	if orphans != len(s.orphans) {
		return fmt.Errorf("%d orphans listed, %d found", len(s.orphans), orphans)
	}
	if total != s.inodes || sizes != s.sizes || own != s.ownInodes || ownBytes != s.ownBytes {
		return fmt.Errorf("totals: inodes %d want %d, bytes %d want %d, own inodes %d want %d, own bytes %d want %d",
			s.inodes, total, s.sizes, sizes, s.ownInodes, own, s.ownBytes, ownBytes)
	}
	return nil
}

func (n *node) checkExtents() error {
	if n.ext == nil {
		if n.baseLen > n.size && n.isReg() {
			return fmt.Errorf("inode %d: base shows %d bytes of %d", n.ino, n.baseLen, n.size)
		}
		return nil
	}
	if n.ext.count() == 0 {
		return fmt.Errorf("inode %d: an empty set of extents", n.ino)
	}
	at, data, over := int64(0), int64(0), int64(0)
	var err error
	n.ext.scan(0, func(x *extent) bool {
		switch {
		case x.off < at || x.len <= 0:
			err = fmt.Errorf("inode %d: extent %+v behind %d", n.ino, *x, at)
		case x.hasBytes() && x.end() > n.size:
			err = fmt.Errorf("inode %d: extent %+v behind the size %d", n.ino, *x, n.size)
		case x.kind == extHole && x.end() > n.baseLen:
			err = fmt.Errorf("inode %d: hole %+v over nothing (base shows %d)", n.ino, *x, n.baseLen)
		}
		at = x.end()
		if x.kind != extHole {
			data += x.len
		}
		over += max(min(x.end(), n.baseLen)-x.off, 0)
		return err == nil
	})
	if err == nil && (data != n.ext.data || over != n.ext.over) {
		err = fmt.Errorf("inode %d: extents of %d bytes over %d, counted %d over %d", n.ino, data, over, n.ext.data, n.ext.over)
	}
	return err
}

// entries: I7 whiteouts are of names that the base has, the two indices agree, and a directory counts its changes.
func (c *census) entries() error {
	s := c.s
	var err error
	changed := map[uint64]int{}
	ordered := 0
	s.names.Scan(func(d *dirent) bool {
		changed[d.dir]++
		_, inBase, berr := s.baseEntry(d.dir, d.name)
		if berr != nil {
			err = berr
			return false
		}
		if inBase != d.base {
			err = fmt.Errorf("name %q in %d: base has it: %v, noted: %v", d.name, d.dir, inBase, d.base)
			return false
		}
		if d.ino != 0 && d.pos >= image.NewPos {
			ordered++
			if o, ok := s.order.Get(d); !ok || o != d {
				err = fmt.Errorf("name %q in %d is not at its position", d.name, d.dir)
			}
		}
		return err == nil
	})
	if err == nil && ordered != s.order.Len() {
		err = fmt.Errorf("%d positions for %d names", s.order.Len(), ordered)
	}
	for dir, want := range changed {
		if n, ok := s.nodes.Get(dir); ok && n.dir != nil && n.dir.changed != want && err == nil {
			err = fmt.Errorf("directory %d: %d changed names, counts %d", dir, want, n.dir.changed)
		}
	}
	return err
}

// checkSpace: I8 every byte of the live data file is in at most one of: shown, dead, free. f.mu is held.
func (f *Fork) checkSpace() error {
	var live []span
	f.w.s.nodes.Scan(func(_ uint64, n *node) bool {
		n.ext.scan(0, func(e *extent) bool {
			if e.kind == extBlock && e.layer == f.log.index {
				live = append(live, span{e.loc, e.loc + e.len})
			}
			return true
		})
		return true
	})
	live = mergeSpans(live)
	sp := f.space
	other := append(append(append(append([]span(nil), sp.free...), sp.limbo...), sp.marked...), sp.waiting...)
	var n int64
	for _, s := range other {
		n += s.end - s.off
		if s.end > sp.tail || s.off >= s.end {
			return fmt.Errorf("run %v of a data file of %d bytes", s, sp.tail)
		}
	}
	for _, s := range mergeSpans(other) {
		n -= s.end - s.off
	}
	if n != 0 {
		return fmt.Errorf("dead or free runs overlap by %d bytes", n)
	}
	all := append(append([]span(nil), live...), mergeSpans(other)...)
	n = 0
	for _, s := range all {
		n += s.end - s.off
	}
	for _, s := range mergeSpans(all) {
		n -= s.end - s.off
	}
	if n != 0 {
		return fmt.Errorf("runs that show and are free or dead overlap by %d bytes", n)
	}
	return nil
}
