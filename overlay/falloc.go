package overlay

import (
	"golang.org/x/sys/unix"

	"tine/overlay/journal"
)

// Fallocate supports mode 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE (with KEEP_SIZE) and FALLOC_FL_ZERO_RANGE
// (with or without); others give EOPNOTSUPP. A reservation counts in st_blocks and in the limits; that the disk has
// the room is only checked now.
func (f *Fork) Fallocate(c Caller, ino uint64, mode uint32, off, n int64) error {
	_, err := f.change(&c, func(w *writer) (Attr, error) { return Attr{}, w.fallocate(&c, ino, mode, off, n) })
	return err
}

func (w *writer) fallocate(c *Caller, ino uint64, mode uint32, off, n int64) error {
	if off < 0 || n <= 0 {
		return unix.EINVAL
	}
	if off > maxSize-n {
		return unix.EFBIG
	}
	node, err := w.s.node(ino)
	if err != nil {
		return err
	}
	if node.isDir() {
		return unix.EISDIR
	}
	if !node.isReg() {
		return unix.ENODEV
	}
	keep := mode&unix.FALLOC_FL_KEEP_SIZE != 0
	end := off + n
	switch mode &^ unix.FALLOC_FL_KEEP_SIZE {
	case 0:
		err = w.planReserve(node, off, end, keep)
	case unix.FALLOC_FL_PUNCH_HOLE:
		if !keep {
			return unix.EOPNOTSUPP
		}
		w.freeing = true
		e := w.rec.Add(journal.Zero)
		e.Ino, e.Off, e.Len, e.Flags = ino, off, n, journal.FlagKeepSize|journal.FlagTouch
	case unix.FALLOC_FL_ZERO_RANGE:
		if err = w.checkRoom(growth(node, off, end)); err == nil {
			e := w.rec.Add(journal.Zero)
			e.Ino, e.Off, e.Len, e.Flags = ino, off, n, journal.FlagReserved|journal.FlagTouch
			if keep {
				e.Flags |= journal.FlagKeepSize
			}
		}
	default:
		return unix.EOPNOTSUPP
	}
	if err != nil {
		return err
	}
	// The request doesn't say whether the caller may keep suid: root may, others lose it.
	w.planKill(c, node, c.UID != 0)
	if err := w.commit(nil, 0); err != nil {
		return err
	}
	w.event(c, Event{Ino: ino})
	return nil
}

// checkRoom refuses a reservation that the limit or the disk has no room for.
func (w *writer) checkRoom(grow int64) error {
	if err := w.checkBytes(grow); err != nil {
		return err
	}
	if grow <= 0 {
		return nil
	}
	var d unix.Statfs_t
	if err := unix.Statfs(w.f.cfg.LayersDir, &d); err == nil && uint64(grow) > d.Bavail*uint64(d.Bsize) {
		return unix.ENOSPC
	}
	return nil
}

// maxGaps keeps the record of a reservation far below journal.MaxPayload.
const maxGaps = 10_000

// planReserve reserves what [off, end) doesn't have yet.
func (w *writer) planReserve(n *node, off, end int64, keep bool) error {
	var gaps []span
	at := max(off, min(n.baseLen, end)) // base content has its space
	reserve := func(lo, hi int64) {
		if lo < hi {
			gaps = append(gaps, span{lo, hi})
		}
	}
	n.ext.scan(off, func(x *extent) bool {
		if x.off >= end {
			return false
		}
		if x.kind == extHole { // over base content
			reserve(max(x.off, off), min(x.end(), end))
		}
		if x.off >= n.baseLen || x.end() > at {
			reserve(at, min(x.off, end))
			at = max(at, x.end())
		}
		return true
	})
	reserve(at, end)
	var grow int64
	for _, g := range gaps {
		grow += g.end - g.off
	}
	if err := w.checkRoom(grow); err != nil {
		return err
	}
	// A reservation says how much space a file takes, no more: of a file in crumbs only so many are filled.
	for _, g := range gaps[:min(len(gaps), maxGaps)] {
		e := w.rec.Add(journal.Zero)
		e.Ino, e.Off, e.Len, e.Flags = n.ino, g.off, g.end-g.off, journal.FlagReserved|journal.FlagKeepSize
	}
	if !keep && end > n.size {
		e := w.rec.Add(journal.Size)
		e.Ino, e.Len = n.ino, end
	}
	w.touch(n.ino, journal.MaskMtimeNow|journal.MaskCtimeNow) // ext4 does, even where nothing is new
	return nil
}

// Seek finds the next data or hole at or behind off; ENXIO behind the end of the file, or when no data follows.
// What the base has is data, and so is what fallocate reserved: on ext4 it is as soon as somebody has read it.
func (f *Fork) Seek(ino uint64, off int64, whence int) (int64, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n, err := f.w.s.node(ino)
	if err != nil {
		return 0, err
	}
	if !n.isReg() {
		return 0, unix.EINVAL
	}
	if off < 0 || off >= n.size {
		return 0, unix.ENXIO
	}
	switch whence {
	case unix.SEEK_DATA:
		if at := n.next(off, true); at < n.size {
			return at, nil
		}
		return 0, unix.ENXIO
	case unix.SEEK_HOLE:
		return min(n.next(off, false), n.size), nil
	}
	return 0, unix.EINVAL
}

// next is the first place at or behind off that is data (or a hole, with data false); n.size or more if there is
// none. Data is told in whole pages, as a file system of blocks does: a hole narrower than its pages isn't one.
func (n *node) next(off int64, data bool) int64 {
	at := off
	found := false
	visit := func(lo, hi int64, isData bool) bool { // [lo, hi) is behind at
		if hi <= at || lo >= hi {
			return true
		}
		if isData == data {
			at, found = max(at, lo), true
			return false
		}
		at = hi
		return true
	}
	n.eachPageRun(off, visit)
	if !found {
		return max(at, n.size)
	}
	return at
}

// eachPageRun visits the file's pages from off's on as alternating runs of data and holes.
func (n *node) eachPageRun(off int64, visit func(lo, hi int64, data bool) bool) {
	start := off &^ (pageSize - 1)
	at, stop := start, false
	data := func(lo, hi int64) bool {
		lo, hi = max(lo&^(pageSize-1), at), (hi+pageSize-1)&^(pageSize-1)
		if hi <= lo {
			return true
		}
		if at < lo && !visit(at, lo, false) {
			stop = true
			return false
		}
		stop = !visit(lo, hi, true)
		at = hi
		return !stop
	}
	base := start // base content shows from here on
	n.ext.scan(start, func(x *extent) bool {
		if x.off >= n.size {
			return false
		}
		if base < min(x.off, n.baseLen) && !data(base, min(x.off, n.baseLen)) {
			return false
		}
		base = max(base, x.end())
		if x.kind != extHole {
			return data(x.off, min(x.end(), n.size))
		}
		return true
	})
	if !stop && base < n.baseLen {
		data(base, n.baseLen)
	}
	if !stop && at < n.size {
		visit(at, n.size, false)
	}
}
