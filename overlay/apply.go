package overlay

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"tine/overlay/journal"
	"tine/snapshot/content"
	"tine/snapshot/image"
)

// apply makes a record's changes. It is the only code that changes a state: an operation plans effects, appends
// them to the journal and applies them; a replay applies what it reads. layer is the index of the journal's layer
// and start the record's offset in it.
//
// An error means that the record doesn't fit the state (damage, or a base that can't be read).
func (s *state) apply(r *journal.Record, layer uint32, start int64) error {
	for i := range r.Effects {
		e := &r.Effects[i]
		if err := s.applyOne(r, e, layer, start); err != nil {
			return fmt.Errorf("effect %d (kind %d) of record %d: %w", i, e.Kind, r.Seq, err)
		}
	}
	return nil
}

func (s *state) applyOne(r *journal.Record, e *journal.Effect, layer uint32, start int64) error {
	switch e.Kind {
	case journal.New:
		return s.applyNew(r, e)
	case journal.Attr:
		return s.applyAttr(r, e)
	case journal.Link:
		return s.applyLink(e)
	case journal.Unlink:
		return s.applyUnlink(e)
	case journal.Inline:
		return s.applyExtent(r, e, extent{off: e.Off, len: e.Len, loc: start + e.At, layer: layer, kind: extInline})
	case journal.Block:
		return s.applyExtent(r, e, extent{off: e.Off, len: e.Len, loc: e.Loc, layer: layer, kind: extBlock})
	case journal.Zero:
		kind := extHole
		if e.Flags&journal.FlagReserved != 0 {
			kind = extReserved
		}
		return s.applyExtent(r, e, extent{off: e.Off, len: e.Len, kind: kind})
	case journal.Size:
		return s.applySize(r, e)
	case journal.Clone:
		return s.applyClone(r, e)
	case journal.SetXattr, journal.DelXattr:
		n, err := s.own(e.Ino)
		if err != nil {
			return err
		}
		if e.Kind == journal.SetXattr {
			n.xattrs = withXattr(n.xattrs, e.Name, e.Data)
		} else {
			n.xattrs = withoutXattr(n.xattrs, e.Name)
		}
		return nil
	case journal.Drop:
		return s.dropOrphan(e.Ino)
	case journal.DropOrphans:
		return s.dropOrphans()
	case journal.Sync, journal.Session:
		return nil // the replay's business
	}
	return fmt.Errorf("unknown effect %d", e.Kind)
}

func (s *state) applyNew(r *journal.Record, e *journal.Effect) error {
	if e.Ino < s.nextIno || e.Ino == math.MaxUint64 {
		return fmt.Errorf("inode %d is not new", e.Ino)
	}
	n := &node{ino: e.Ino, epoch: s.epoch, mode: e.Mode, nlink: e.Nlink, uid: e.UID, gid: e.GID, rdev: e.Rdev}
	n.setMtime(r.Time)
	n.setCtime(r.Time)
	n.btimeS, n.btimeN = r.Time.Sec, r.Time.Nsec
	switch {
	case n.isDir():
		n.parent = e.Parent
		n.dir = &dirState{nextPos: image.NewPos}
	case n.isSymlink():
		n.target, n.size = string(e.Data), int64(len(e.Data))
	}
	if e.Nlink == 0 {
		n.flags |= nodeLinkable
		s.addOrphan(e.Ino)
	}
	s.nodes.Set(e.Ino, n)
	s.nextIno = e.Ino + 1
	s.inodes++
	s.ownInodes++
	return nil
}

func (s *state) applyAttr(r *journal.Record, e *journal.Effect) error {
	n, err := s.own(e.Ino)
	if err != nil {
		return err
	}
	m := e.Mask
	if m&journal.MaskMode != 0 {
		n.mode = n.mode&unix.S_IFMT | e.Mode&^unix.S_IFMT
	}
	if m&journal.MaskUID != 0 {
		n.uid = e.UID
	}
	if m&journal.MaskGID != 0 {
		n.gid = e.GID
	}
	if m&journal.MaskNlink != 0 {
		n.nlink = e.Nlink
		if n.nlink == 0 {
			s.addOrphan(n.ino)
		} else {
			delete(s.orphans, n.ino)
			n.flags &^= nodeLinkable
		}
	}
	if m&journal.MaskParent != 0 {
		n.parent = e.Parent
	}
	if m&journal.MaskAtime != 0 {
		n.setAtime(e.Atime)
	}
	if m&journal.MaskMtime != 0 {
		n.setMtime(e.Mtime)
	}
	if m&journal.MaskCtime != 0 {
		n.setCtime(e.Ctime)
	}
	if m&journal.MaskMtimeNow != 0 {
		n.setMtime(r.Time)
	}
	if m&journal.MaskCtimeNow != 0 {
		n.setCtime(r.Time)
	}
	return nil
}

func (s *state) applyLink(e *journal.Effect) error {
	n, err := s.ownDir(e.Dir)
	if err != nil {
		return err
	}
	if !n.isDir() {
		return unix.ENOTDIR
	}
	old, err := s.entry(e.Dir, e.Name)
	if err != nil {
		return err
	}
	d := &dirent{dir: e.Dir, ino: e.Ino, pos: e.Pos, name: e.Name, typ: e.Type}
	if old != nil {
		d.base = old.base
	} else {
		n.dir.count++
		if n.flags&nodeBase != 0 {
			if _, d.base, err = s.baseEntry(e.Dir, e.Name); err != nil {
				return err
			}
		}
	}
	prev, had := s.names.Set(d)
	if !had {
		n.dir.changed++
	} else if prev.ino != 0 && prev.pos >= image.NewPos {
		s.order.Delete(prev)
	}
	if e.Pos >= image.NewPos {
		s.order.Set(d)
		n.dir.nextPos = max(n.dir.nextPos, e.Pos+1)
	}
	return nil
}

func (s *state) applyUnlink(e *journal.Effect) error {
	n, err := s.ownDir(e.Dir)
	if err != nil {
		return err
	}
	old, err := s.entry(e.Dir, e.Name)
	if err != nil {
		return err
	}
	if old == nil {
		return unix.ENOENT
	}
	if old.pos >= image.NewPos {
		s.order.Delete(old)
	}
	n.dir.count--
	if old.base {
		if _, had := s.names.Set(&dirent{dir: e.Dir, name: e.Name, base: true}); !had {
			n.dir.changed++
		}
	} else {
		s.names.Delete(old)
		n.dir.changed--
	}
	return nil
}

// lost accounts for a run that no longer shows and tells the owner of the space.
func (s *state) lost(e extent) {
	if e.kind == extInline {
		s.inline -= e.len
	}
	if s.dead != nil && !e.shared {
		s.dead(e)
	}
}

func (s *state) ownFile(ino uint64) (*node, error) {
	n, err := s.own(ino)
	if err == nil && !n.isReg() {
		err = unix.EINVAL
	}
	return n, err
}

// touch finishes a change of contents.
func (s *state) touch(n *node, r *journal.Record, flags uint8, end int64) {
	if flags&journal.FlagKeepSize == 0 && end > n.size {
		s.sizes += end - n.size
		n.size = end
	}
	if flags&journal.FlagTouch != 0 {
		n.setMtime(r.Time)
		n.setCtime(r.Time)
	}
}

func (s *state) applyExtent(r *journal.Record, e *journal.Effect, x extent) error {
	n, err := s.ownFile(e.Ino)
	if err != nil {
		return err
	}
	if x.len > 0 {
		s.put(n, x)
	}
	s.touch(n, r, e.Flags, e.Off+e.Len)
	return nil
}

// put lays x over n's content.
func (s *state) put(n *node, x extent) {
	n.ext = n.ext.own(s.epoch)
	s.ownBytes -= n.ext.data
	if x.kind == extHole {
		// A hole is only needed where base content would show through.
		keep := x
		if keep.end() > n.baseLen {
			keep.len = max(n.baseLen-keep.off, 0)
		}
		n.ext.replace(x.off, x.end(), keep, n.baseLen, s.lost)
	} else {
		n.ext.replace(x.off, x.end(), x, n.baseLen, s.lost)
	}
	s.ownBytes += n.ext.data
	if x.kind == extInline {
		s.inline += x.len
	}
	if n.ext.count() == 0 {
		n.ext = nil
	}
}

func (s *state) applySize(r *journal.Record, e *journal.Effect) error {
	n, err := s.ownFile(e.Ino)
	if err != nil {
		return err
	}
	if e.Len <= n.size {
		s.cut(n, e.Len)
	}
	s.sizes += e.Len - n.size
	n.size = e.Len
	s.touch(n, r, e.Flags, 0)
	return nil
}

// cut drops all content from size on.
func (s *state) cut(n *node, size int64) {
	if n.ext != nil && n.ext.count() > 0 {
		n.ext = n.ext.own(s.epoch)
		s.ownBytes -= n.ext.data
		n.ext.replace(size, math.MaxInt64, extent{}, n.baseLen, s.lost)
		s.ownBytes += n.ext.data
	}
	n.baseLen = min(n.baseLen, size)
	if n.ext != nil && n.ext.count() == 0 {
		n.ext = nil
	}
}

// applyClone makes a range of one file show what a range of another shows.
func (s *state) applyClone(r *journal.Record, e *journal.Effect) error {
	src, err := s.node(e.Ino)
	if err == nil && !src.isReg() {
		err = unix.EINVAL
	}
	if err != nil {
		return err
	}
	dst, err := s.ownFile(e.Dst)
	if err != nil {
		return err
	}
	var runs []extent
	s.runs(src, e.Off, e.Off+e.Len, func(x extent) { runs = append(runs, x) })
	// The source's runs are shared from now on: neither side's death frees them.
	if src.ext != nil {
		if src, err = s.own(e.Ino); err != nil {
			return err
		}
		src.ext = src.ext.own(s.epoch)
		src.ext.share(e.Off, e.Off+e.Len)
	}
	for _, x := range runs {
		x.off += e.DstOff - e.Off
		if x.kind == extHole {
			x.kind = extReserved // a copy has no holes, as if its zeroes had been written
		}
		s.put(dst, x)
	}
	s.touch(dst, r, e.Flags, e.DstOff+e.Len)
	return nil
}

// runs calls fn for what [off, end) of n shows, without gaps: holes, and stored runs (base content becomes extRef).
func (s *state) runs(n *node, off, end int64, fn func(extent)) {
	gap := func(lo, hi int64) {
		if m := min(hi, n.baseLen); lo < m {
			fn(extent{off: lo, len: m - lo, loc: lo, layer: s.ref(n.base.content, n.base.size), kind: extRef, shared: true})
			lo = m
		}
		if lo < hi {
			fn(extent{off: lo, len: hi - lo, kind: extHole})
		}
	}
	at := off
	n.ext.scan(off, func(x *extent) bool {
		if x.off >= end {
			return false
		}
		lo, hi := max(x.off, off), min(x.end(), end)
		if at < lo {
			gap(at, lo)
		}
		p := x.part(lo, hi)
		if p.hasBytes() {
			p.shared = true
		} else {
			p.kind = extHole
		}
		fn(p)
		at = hi
		return true
	})
	if at < end {
		gap(at, end)
	}
}

// ref finds or adds a stored content in the table of refs.
func (s *state) ref(id content.ID, size int64) uint32 {
	for i := len(s.refs) - 1; i >= 0 && i >= len(s.refs)-64; i-- {
		if s.refs[i].id == id {
			return uint32(i)
		}
	}
	s.refs = append(s.refs, contentRef{id, size})
	return uint32(len(s.refs) - 1)
}

// dropOrphan ends an inode without names; one that has names again, or is gone, is left alone.
func (s *state) dropOrphan(ino uint64) error {
	n, ok, err := s.changed(ino)
	if err != nil || !ok || n.nlink > 0 {
		return nil
	}
	if n.isReg() {
		if n, err = s.own(ino); err != nil {
			return err
		}
		s.cut(n, 0)
		s.sizes -= n.size
		n.size = 0
	}
	delete(s.orphans, ino)
	s.inodes--
	if n.flags&nodeBase != 0 {
		s.nodes.Set(ino, &node{ino: ino, epoch: s.epoch, mode: n.mode, flags: nodeGone | nodeBase, parent: n.parent})
	} else {
		s.ownInodes--
		s.nodes.Delete(ino)
	}
	return nil
}

func (s *state) dropOrphans() error {
	for ino := range s.orphans {
		if err := s.dropOrphan(ino); err != nil {
			return err
		}
	}
	return nil
}
