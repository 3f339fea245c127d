package overlay

import (
	"golang.org/x/sys/unix"

	"tine/overlay/journal"
)

const (
	// inlineMax (16 KiB) is the largest write that goes into the journal itself: one write(2) for it all.
	inlineMax = 16 << 10
	// maxRun (64 MiB) bounds one run written to a data file.
	maxRun = 64 << 20
	// deadInline (32 MiB) of inline bytes that no longer show, and more than those that do, send small writes to the
	// data file, whose space is used again.
	deadInline = 32 << 20
)

// Write writes data at off. kill clears suid and sgid (the caller has no CAP_FSETID). It writes all of data or
// nothing.
func (f *Fork) Write(c Caller, ino uint64, data []byte, off int64, kill bool) (int, error) {
	if off < 0 || len(data) > maxRun {
		return 0, unix.EINVAL
	}
	if len(data) == 0 {
		return 0, nil
	}
	if off > maxSize-int64(len(data)) {
		return 0, unix.EFBIG
	}
	f.gate.enter()
	defer f.gate.leave()
	for try := 0; ; try++ {
		err := f.write(&c, ino, data, off, kill)
		if err == nil {
			return len(data), nil
		}
		if try > 0 || Errno(err) != unix.ENOSPC || !f.reclaim() {
			return 0, err
		}
	}
}

func (f *Fork) write(c *Caller, ino uint64, data []byte, off int64, kill bool) error {
	f.mu.Lock()
	if len(data) <= inlineMax && !f.preferData() {
		w := &f.w
		w.begin()
		crowded, err := w.writeInline(c, ino, data, off, kill)
		w.end()
		events := w.events
		w.events = nil
		f.maybeReclaimLocked()
		f.mu.Unlock()
		f.events.send(events)
		if err == nil && crowded {
			f.consolidate(ino, off)
		}
		return err
	}
	err := f.w.writeData(c, ino, data, off, kill)
	events := f.w.events
	f.w.events = nil
	f.maybeReclaimLocked()
	f.mu.Unlock()
	f.events.send(events)
	return err
}

// preferData: the journal holds too much that is dead. f.mu is held.
func (f *Fork) preferData() bool {
	dead := f.wastedLocked()
	return dead > deadInline && dead > 2*f.w.s.inline
}

// file returns a regular file for a change of its contents.
func (w *writer) file(ino uint64) (*node, error) {
	n, err := w.s.node(ino)
	if err != nil {
		return nil, err
	}
	if n.isDir() {
		return nil, unix.EISDIR
	}
	if !n.isReg() {
		return nil, unix.EINVAL
	}
	return n, nil
}

// growth is how many bytes a write of [off, end) adds to what the fork holds.
func growth(n *node, off, end int64) int64 {
	g := end - off
	for _, x := range n.ext.in(off, end) {
		if x.kind != extHole {
			g -= min(x.end(), end) - max(x.off, off)
		}
	}
	return g
}

func (w *writer) writeInline(c *Caller, ino uint64, data []byte, off int64, kill bool) (crowded bool, err error) {
	n, err := w.file(ino)
	if err != nil {
		return false, err
	}
	if w.f.limits.Bytes > 0 {
		if err := w.checkBytes(growth(n, off, off+int64(len(data)))); err != nil {
			return false, err
		}
	}
	e := w.rec.Add(journal.Inline)
	e.Ino, e.Off, e.Len, e.Data, e.Flags = ino, off, int64(len(data)), data, journal.FlagTouch
	w.planKill(c, n, kill)
	if err := w.commit(nil, 0); err != nil {
		return false, err
	}
	w.event(c, Event{Ino: ino})
	return w.crowded(ino, off), nil
}

// writeData writes to the data file with the fork's lock released, then commits. The lock is held before and after.
func (w *writer) writeData(c *Caller, ino uint64, data []byte, off int64, kill bool) error {
	f := w.f
	n, err := w.file(ino)
	if err == nil {
		err = w.writable()
	}
	if err == nil {
		err = w.checkBytes(growth(n, off, off+int64(len(data))))
	}
	if err == nil {
		err = f.log.openData(f)
	}
	if err != nil {
		return err
	}
	size := int64(len(data))
	loc := f.space.alloc(size, follow(n, off, f.log.index))
	d := f.log.d.f
	f.mu.Unlock()
	_, err = d.WriteAt(data, loc)
	crc := journal.CRC(data)
	f.mu.Lock()
	if err == nil {
		f.log.written = true
		n, err = w.file(ino) // it may have gone meanwhile
	}
	if err == nil {
		w.begin()
		e := w.rec.Add(journal.Block)
		e.Ino, e.Off, e.Len, e.Loc, e.CRC, e.Flags = ino, off, size, loc, crc, journal.FlagTouch
		w.planKill(c, n, kill)
		err = w.commit(nil, 0)
		w.end()
	}
	if err != nil {
		f.space.unused(loc, size)
		return err
	}
	if w.txn {
		w.blocks = append(w.blocks, span{loc, loc + size})
	}
	w.event(c, Event{Ino: ino})
	return nil
}

// follow is where in the live data file the run that ends at off ends, or -1.
func follow(n *node, off int64, live uint32) int64 {
	for _, x := range n.ext.in(off-1, off) {
		if x.end() == off && x.kind == extBlock && x.layer == live && !x.shared {
			return x.loc + x.len
		}
	}
	return -1
}

const (
	// crowdWindow and crowdMax: when a window of 64 KiB has more than 32 runs under 4 KiB, those around the write
	// become one, so that byte-wise writing costs memory in proportion to the bytes, not to the writes.
	crowdWindow = 64 << 10
	crowdMax    = 32
	smallRun    = 4 << 10
)

// crowded reports whether small runs around off should become one.
func (w *writer) crowded(ino uint64, off int64) bool {
	n, ok := w.s.nodes.Get(ino)
	if !ok || n.ext.count() <= crowdMax || w.txn {
		return false
	}
	lo := off &^ (crowdWindow - 1)
	small := 0
	for _, x := range n.ext.in(lo, lo+crowdWindow) {
		if x.len < smallRun && x.hasBytes() {
			small++
		}
	}
	return small > crowdMax
}

// consolidate rewrites the small runs that touch each other around off as one run of the data file. It is only an
// economy: any failure leaves things as they are. The write barrier is held by the caller.
func (f *Fork) consolidate(ino uint64, off int64) {
	f.mu.RLock()
	n, ok := f.w.s.nodes.Get(ino)
	if !ok {
		f.mu.RUnlock()
		return
	}
	runs := smallRuns(n, off)
	if len(runs) < 8 {
		f.mu.RUnlock()
		return
	}
	lo, hi := runs[0].off, runs[len(runs)-1].end()
	buf := make([]byte, hi-lo)
	list, total := n.pieces(nil, lo, len(buf))
	src := f.w.s.source(n, f.cfg.Contents, f.table)
	sp := f.space
	g := sp.reads.enter()
	f.mu.RUnlock()
	err := src.read(list, buf)
	sp.reads.exit(g)
	if err != nil || total != len(buf) {
		return
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	w := &f.w
	if w.writable() != nil || f.log.openData(f) != nil {
		return
	}
	loc := f.space.alloc(hi-lo, -1)
	d := f.log.d.f
	f.mu.Unlock()
	_, err = d.WriteAt(buf, loc)
	crc := journal.CRC(buf)
	f.mu.Lock()
	f.log.written = true
	n, ok = w.s.nodes.Get(ino)
	if err != nil || !ok || !sameRuns(runs, smallRuns(n, off)) {
		f.space.unused(loc, hi-lo)
		return
	}
	w.begin()
	w.quiet = true
	e := w.rec.Add(journal.Block)
	e.Ino, e.Off, e.Len, e.Loc, e.CRC, e.Flags = ino, lo, hi-lo, loc, crc, journal.FlagKeepSize
	if w.commit(nil, 0) != nil {
		f.space.unused(loc, hi-lo)
	}
	w.end()
}

// smallRuns is the longest row of touching small runs around off, within its window.
func smallRuns(n *node, off int64) []extent {
	lo := off &^ (crowdWindow - 1)
	var row []extent
	done := false
	n.ext.scan(lo, func(x *extent) bool {
		if x.off >= lo+crowdWindow {
			return false
		}
		small := x.len < smallRun && x.hasBytes()
		if !small || len(row) > 0 && row[len(row)-1].end() != x.off {
			if len(row) > 0 && row[len(row)-1].end() > off {
				done = true
				return false
			}
			row = row[:0]
		}
		if small {
			row = append(row, *x)
		}
		return !done
	})
	return row
}

func sameRuns(a, b []extent) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
