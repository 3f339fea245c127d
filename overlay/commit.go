package overlay

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"tine/overlay/journal"
	"tine/snapshot/image"
)

// writer plans operations on a state and commits them. A fork has one for its live state, used with the fork's lock
// held; a transaction has its own, over a clone.
type writer struct {
	f     *Fork
	s     *state
	txn   bool // records belong to one transaction
	begun bool // its first record is written

	rec     *journal.Record // being planned; nil outside an operation
	freeing bool            // the record may use the journal's reserve
	quiet   bool            // the record changes nothing that anybody sees
	pending []journal.Effect
	blocks  []span // written in the data file by a transaction
	events  []Event
	sc      *scratch
}

// scratch is memory that idle forks shouldn't hold.
type scratch struct {
	rec  journal.Record
	pend journal.Record
	buf  []byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// begin starts the planning of an operation.
func (w *writer) begin() *journal.Record {
	if w.sc == nil {
		w.sc = scratches.Get().(*scratch)
	}
	w.rec = &w.sc.rec
	w.rec.Reset()
	w.freeing, w.quiet = false, false
	w.rec.Time = w.f.cfg.Now()
	return w.rec
}

// end gives the scratch memory back.
func (w *writer) end() {
	sc := w.sc
	w.sc, w.rec = nil, nil
	if sc == nil {
		return
	}
	clear(sc.rec.Effects)
	clear(sc.pend.Effects)
	if cap(sc.buf) > 256<<10 {
		sc.buf = nil
	}
	scratches.Put(sc)
}

// writable refuses changes that can't be recorded.
func (w *writer) writable() error {
	switch f := w.f; {
	case f.closed:
		return unix.EBADF
	case f.cfg.ReadOnly:
		return unix.EROFS
	case f.broken != nil:
		return f.broken
	}
	return nil
}

// commit appends the planned record, and pending ones before it, and applies them. value is the answer that a resent
// request gets.
func (w *writer) commit(c *Caller, value uint64) error {
	if err := w.writable(); err != nil {
		return err
	}
	g := &w.f.log
	if err := g.open(w.f); err != nil {
		return err
	}
	r := w.rec
	r.HasReply = c != nil && c.Unique != 0
	if r.HasReply {
		r.Unique, r.Value = c.Unique, value
	}
	buf := w.sc.buf[:0]
	seq := g.seq
	pend := w.takePending(c)
	if pend != nil {
		pend.Seq, pend.Gen, pend.Begin, pend.Commit, pend.Time = seq, w.f.cfg.Generation, true, true, r.Time
		buf = journal.Append(buf, g.l.salt, pend)
		seq++
	}
	at := int64(len(buf))
	r.Seq, r.Gen = seq, w.f.cfg.Generation
	r.Begin, r.Commit = !w.txn || !w.begun, !w.txn
	buf = journal.Append(buf, g.l.salt, r)
	w.sc.buf = buf
	if int64(len(buf))-at > journal.MaxPayload {
		return unix.E2BIG
	}
	start := g.tail
	if err := g.append(buf, w.s.ownInodes, w.freeing); err != nil {
		return w.f.failedLocked(err)
	}
	g.seq = seq + 1
	w.begun = true
	if pend != nil {
		if err := w.wrotePending(pend, start); err != nil {
			return err
		}
	}
	if err := w.s.apply(r, g.index, start+at); err != nil {
		return w.f.failedLocked(&BrokenError{Cause: err})
	}
	if r.HasReply {
		w.f.replies.add(c.Conn, c.Unique, value)
	}
	if !w.quiet {
		w.f.counter.Add(1)
	}
	return nil
}

// wrotePending applies what takePending gave.
func (w *writer) wrotePending(p *journal.Record, start int64) error {
	g := &w.f.log
	if e := &p.Effects[0]; e.Kind == journal.Session {
		g.session, g.conn, g.boot = true, e.Conn, e.Boot
	}
	w.pending = w.pending[:0]
	if err := w.s.apply(p, g.index, start); err != nil {
		return w.f.failedLocked(&BrokenError{Cause: err})
	}
	return nil
}

// takePending builds the record that has to come before the next: the session, ended orphans.
func (w *writer) takePending(c *Caller) *journal.Record {
	g := &w.f.log
	session := !g.session || c != nil && c.Unique != 0 && c.Conn != g.conn
	if w.txn || len(w.pending) == 0 && !session {
		return nil
	}
	p := &w.sc.pend
	p.Reset()
	if session {
		e := p.Add(journal.Session)
		e.Boot, e.Conn = w.f.boot, g.conn
		if c != nil && c.Unique != 0 {
			e.Conn = c.Conn
		}
	}
	for i := range w.pending {
		*p.Add(w.pending[i].Kind) = w.pending[i]
	}
	return p
}

// flushPending writes what waits for a next record. Nothing is written for a session alone.
func (w *writer) flushPending() error {
	if len(w.pending) == 0 || w.writable() != nil {
		return nil
	}
	w.begin()
	defer w.end()
	w.freeing = true
	g := &w.f.log
	if err := g.open(w.f); err != nil {
		return err
	}
	p := w.takePending(nil)
	p.Seq, p.Gen, p.Begin, p.Commit, p.Time = g.seq, w.f.cfg.Generation, true, true, w.rec.Time
	w.sc.buf = journal.Append(w.sc.buf[:0], g.l.salt, p)
	start := g.tail
	if err := g.append(w.sc.buf, w.s.ownInodes, true); err != nil {
		return w.f.failedLocked(err)
	}
	g.seq++
	return w.wrotePending(p, start)
}

// failedLocked remembers an error after which nothing may be appended. f.mu is held.
func (f *Fork) failedLocked(err error) error {
	var b *BrokenError
	if errors.As(err, &b) && f.broken == nil {
		f.broken = b
	}
	return err
}

// touch adds the effect of a changed directory or a changed inode's ctime.
func (w *writer) touch(ino uint64, mask uint32) *journal.Effect {
	e := w.rec.Add(journal.Attr)
	e.Ino, e.Mask = ino, mask
	return e
}

const touchDir = journal.MaskMtimeNow | journal.MaskCtimeNow

// change runs one operation of a caller under the write barrier and the fork's lock. The operation is planned and
// committed by fn; if the disk is full, dead space is reclaimed and fn is tried again.
func (f *Fork) change(c *Caller, fn func(w *writer) (Attr, error)) (Attr, error) {
	f.gate.enter()
	defer f.gate.leave()
	for try := 0; ; try++ {
		a, events, err := f.changeOnce(c, fn)
		f.events.send(events)
		if err != nil && try == 0 && errors.Is(err, unix.ENOSPC) && f.reclaim() {
			continue
		}
		return a, err
	}
}

func (f *Fork) changeOnce(c *Caller, fn func(w *writer) (Attr, error)) (Attr, []Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.maybeReclaimLocked()
	if c.Resent {
		if value, ok := f.replies.find(c.Conn, c.Unique); ok {
			a, err := f.replayed(value)
			return a, nil, err
		}
	}
	w := &f.w
	w.begin()
	a, err := fn(w)
	w.end()
	events := w.events
	w.events = nil
	return a, events, err
}

// replayed is the answer to a request that was done before. value is the inode of its result, or 0.
func (f *Fork) replayed(value uint64) (Attr, error) {
	if value == 0 {
		return Attr{}, nil
	}
	n, err := f.w.s.node(value)
	if err != nil {
		return Attr{}, err
	}
	return f.attrOf(n), nil
}

// event notes a change that the kernel doesn't know of.
func (w *writer) event(c *Caller, e Event) {
	if (w.txn || c.Conn == ([16]byte{})) && w.f.events.wanted() {
		w.events = append(w.events, e)
	}
}

// checkInodes refuses a new inode over the limit.
func (w *writer) checkInodes() error {
	if l := w.f.limits.Inodes; l > 0 && w.s.ownInodes+1 > l {
		return &LimitError{What: "files", Limit: l}
	}
	return nil
}

// checkBytes refuses growth over the limit.
func (w *writer) checkBytes(grow int64) error {
	if l := w.f.limits.Bytes; l > 0 && grow > 0 && w.s.ownBytes+grow > l {
		return &LimitError{What: "bytes", Limit: l}
	}
	return nil
}

// nextPos is the readdir position of the next new entry of a directory.
func nextPos(dir *node) uint64 {
	if dir.dir == nil {
		return image.NewPos
	}
	return dir.dir.nextPos
}
