package overlay

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"tine/overlay/journal"
)

// Tx is a transaction: changes that happen together or not at all, also across crashes. It sees its own changes;
// nobody else sees any of them before it commits. Not safe for concurrent use.
type Tx struct {
	f    *Fork
	w    writer
	dead []extent
}

// Txn runs fn as one transaction. Other changes wait at the barrier from before fn until its end; reads go on and
// see the state before. An error from fn undoes everything. fn must not call f's own changing methods.
func (f *Fork) Txn(fn func(*Tx) error) error {
	if err := f.gate.park(context.Background()); err != nil {
		return err
	}
	defer f.Unpark()
	f.turn.Lock()
	defer f.turn.Unlock()
	f.syncMu.Lock() // a sync mark must not come between the records
	defer f.syncMu.Unlock()

	f.mu.Lock()
	if err := f.w.writable(); err != nil {
		f.mu.Unlock()
		return err
	}
	if err := f.w.beginTxn(); err != nil {
		f.mu.Unlock()
		return err
	}
	tx := &Tx{f: f}
	tx.w = writer{f: f, s: f.w.s.clone(), txn: true}
	tx.w.s.dead = func(e extent) { tx.dead = append(tx.dead, e) }
	f.txn = true
	was := f.log
	f.mu.Unlock()

	err := fn(tx)

	f.mu.Lock()
	f.txn = false
	if err == nil && tx.w.begun {
		err = tx.commitLocked()
	}
	if err != nil {
		err = tx.undoLocked(&was, err)
		f.mu.Unlock()
		return err
	}
	list := tx.w.events
	f.mu.Unlock()
	f.events.send(list)
	return nil
}

// beginTxn writes what must not wait for a record of the transaction. f.mu is held.
func (w *writer) beginTxn() error {
	if err := w.flushPending(); err != nil {
		return err
	}
	g := &w.f.log
	if g.session {
		return nil
	}
	w.begin()
	defer w.end()
	w.quiet = true
	return w.commit(nil, 0) // an empty record, for the session before it
}

// commitLocked writes the record that makes the transaction count. f.mu is held.
func (tx *Tx) commitLocked() error {
	w := &tx.w
	w.begin()
	defer w.end()
	w.txn = false
	w.begun = false
	r := w.rec
	g := &tx.f.log
	r.Seq, r.Gen, r.Begin, r.Commit = g.seq, tx.f.cfg.Generation, false, true
	w.sc.buf = journal.Append(w.sc.buf[:0], g.l.salt, r)
	if err := g.append(w.sc.buf, w.s.ownInodes, false); err != nil {
		return err
	}
	g.seq++
	// Nobody has changed the fork's own state meanwhile: forgets waited.
	w.s.dead = tx.f.deadLocked
	tx.f.w.s = w.s
	for _, e := range tx.dead {
		tx.f.deadLocked(e)
	}
	return nil
}

// undoLocked takes the transaction's records back. f.mu is held.
func (tx *Tx) undoLocked(was *log, cause error) error {
	g := &tx.f.log
	for _, s := range tx.w.blocks {
		tx.f.space.kill(s.off, s.end-s.off)
	}
	if g.tail == was.tail || tx.f.broken != nil {
		return cause
	}
	if err := g.j.f.Truncate(was.tail); err != nil {
		return errors.Join(cause, tx.f.failedLocked(&BrokenError{Cause: err}))
	}
	g.tail, g.size, g.seq = was.tail, was.tail, was.seq
	return cause
}

// pendDropOrphans ends all orphans of the layers below with the next record.
func (w *writer) pendDropOrphans() {
	w.pending = append([]journal.Effect{{Kind: journal.DropOrphans}}, w.pending...)
}

// do runs one operation of the transaction.
func (tx *Tx) do(fn func(w *writer) (Attr, error)) (Attr, error) {
	tx.f.mu.Lock()
	defer tx.f.mu.Unlock()
	tx.w.begin()
	defer tx.w.end()
	return fn(&tx.w)
}

// The operations are those of Fork. Caller's Unique is ignored: a transaction is no request.

func (tx *Tx) Create(c Caller, dir uint64, name string, mode uint32, excl bool) (Attr, error) {
	c.Unique = 0
	return tx.do(func(w *writer) (Attr, error) { return w.create(&c, dir, name, mode, excl) })
}

func (tx *Tx) Mkdir(c Caller, dir uint64, name string, mode uint32) (Attr, error) {
	c.Unique = 0
	return tx.do(func(w *writer) (Attr, error) { return w.mkdir(&c, dir, name, mode) })
}

func (tx *Tx) Symlink(c Caller, dir uint64, name, target string) (Attr, error) {
	c.Unique = 0
	return tx.do(func(w *writer) (Attr, error) { return w.symlink(&c, dir, name, target) })
}

func (tx *Tx) Link(c Caller, ino, dir uint64, name string) (Attr, error) {
	c.Unique = 0
	return tx.do(func(w *writer) (Attr, error) { return w.hardlink(&c, ino, dir, name) })
}

func (tx *Tx) Setattr(c Caller, ino uint64, s SetAttr) (Attr, error) {
	c.Unique = 0
	return tx.do(func(w *writer) (Attr, error) { return w.setattr(&c, ino, &s) })
}

func (tx *Tx) Unlink(c Caller, dir uint64, name string) error {
	c.Unique = 0
	_, err := tx.do(func(w *writer) (Attr, error) { return Attr{}, w.unlink(&c, dir, name) })
	return err
}

func (tx *Tx) Rmdir(c Caller, dir uint64, name string) error {
	c.Unique = 0
	_, err := tx.do(func(w *writer) (Attr, error) { return Attr{}, w.rmdir(&c, dir, name) })
	return err
}

func (tx *Tx) Rename(c Caller, oldDir uint64, oldName string, newDir uint64, newName string, flags uint32) error {
	c.Unique = 0
	_, err := tx.do(func(w *writer) (Attr, error) {
		return Attr{}, w.rename(&c, oldDir, oldName, newDir, newName, flags)
	})
	return err
}

func (tx *Tx) Setxattr(c Caller, ino uint64, name string, value []byte, flags uint32) error {
	c.Unique = 0
	_, err := tx.do(func(w *writer) (Attr, error) { return Attr{}, w.setxattr(&c, ino, name, value, flags) })
	return err
}

func (tx *Tx) Removexattr(c Caller, ino uint64, name string) error {
	c.Unique = 0
	_, err := tx.do(func(w *writer) (Attr, error) { return Attr{}, w.removexattr(&c, ino, name) })
	return err
}

// Write writes all of data or nothing.
func (tx *Tx) Write(c Caller, ino uint64, data []byte, off int64) (int, error) {
	if off < 0 || len(data) > maxRun {
		return 0, unix.EINVAL
	}
	if len(data) == 0 {
		return 0, nil
	}
	if off > maxSize-int64(len(data)) {
		return 0, unix.EFBIG
	}
	tx.f.mu.Lock()
	defer tx.f.mu.Unlock()
	if len(data) <= inlineMax {
		tx.w.begin()
		defer tx.w.end()
		if _, err := tx.w.writeInline(&c, ino, data, off, true); err != nil {
			return 0, err
		}
		return len(data), nil
	}
	if err := tx.w.writeData(&c, ino, data, off, true); err != nil {
		return 0, err
	}
	return len(data), nil
}

// Read, Lookup, Getattr, Readlink and ReadDir see the transaction's own changes.
func (tx *Tx) Read(ino uint64, buf []byte, off int64) (int, error) {
	n, err := tx.w.file(ino)
	if err != nil {
		return 0, err
	}
	list, total := n.pieces(nil, off, len(buf))
	src := tx.w.s.source(n, tx.f.cfg.Contents, tx.f.table)
	if err := src.read(list, buf); err != nil {
		return 0, &IOError{Op: "reading", Ino: ino, Err: err}
	}
	return total, nil
}

func (tx *Tx) Lookup(dir uint64, name string) (Attr, error) {
	d, err := tx.w.s.entry(dir, name)
	if err == nil && d == nil {
		err = unix.ENOENT
	}
	if err != nil {
		return Attr{}, err
	}
	return tx.Getattr(d.ino)
}

func (tx *Tx) Getattr(ino uint64) (Attr, error) {
	n, err := tx.w.s.node(ino)
	if err != nil {
		return Attr{}, err
	}
	return tx.f.attrOf(n), nil
}

func (tx *Tx) Readlink(ino uint64) (string, error) {
	n, err := tx.w.s.node(ino)
	if err != nil {
		return "", err
	}
	return readTarget(n, tx.f.cfg.Contents)
}

func (tx *Tx) ReadDir(dir, after uint64, yield func(Dirent) bool) error {
	return tx.w.s.readDir(dir, after, yield)
}
