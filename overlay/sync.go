package overlay

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"tine/overlay/journal"
)

// Fsync makes every change of the fork up to now durable; callers that wait at the same time share the work. ino and
// datasync only say what was asked: one journal holds all.
func (f *Fork) Fsync(ino uint64, datasync bool) error {
	if f.cfg.ReadOnly {
		return nil
	}
	f.mu.RLock()
	target := f.log.seq - 1
	broken, closed := f.broken, f.closed
	f.mu.RUnlock()
	if closed {
		return unix.EBADF
	}
	if broken != nil {
		return broken
	}
	f.syncMu.Lock()
	defer f.syncMu.Unlock()
	if f.synced >= target && target > 0 && len(f.unsync) == 0 {
		return nil // somebody's sync that began after our last change
	}
	return f.syncLocked()
}

// syncLocked writes a sync mark and makes it durable. f.syncMu is held.
func (f *Fork) syncLocked() error {
	if err := f.syncClosed(); err != nil {
		return f.failed(err)
	}
	f.mu.Lock()
	w := &f.w
	g := &f.log
	if f.closed || w.writable() != nil {
		err := w.writable()
		f.mu.Unlock()
		return err
	}
	if err := w.flushPending(); err != nil {
		f.mu.Unlock()
		return err
	}
	if g.j == nil && g.tail == 0 {
		f.mu.Unlock()
		return nil // nothing was ever written here
	}
	if err := g.open(f); err != nil {
		f.mu.Unlock()
		return err
	}
	covered := g.seq - 1
	j, d := g.j, g.d
	if !g.written {
		d = nil
	}
	g.written = false
	names := g.names
	// What died up to here is marked: a block that was born later isn't covered by this mark either.
	f.space.mark()
	f.mu.Unlock()

	// fdatasync(data), then the mark, then fdatasync(journal): a mark on disk means blocks on disk.
	if d != nil {
		if err := d.Datasync(); err != nil {
			return f.failed(err)
		}
	}
	if names > g.namesSynced {
		if err := f.syncNames(); err != nil {
			return f.failed(err)
		}
	}
	f.mu.Lock()
	seq, err := w.syncMark(covered)
	f.mu.Unlock()
	if err != nil {
		return err
	}
	if err := j.Datasync(); err != nil {
		return f.failed(err)
	}

	f.mu.Lock()
	g.durable = seq
	g.namesSynced = names
	f.space.settle()
	f.mu.Unlock()
	// Changes that came in between covered and the mark have their records on disk, but perhaps not their blocks.
	f.synced = covered
	if seq == covered+1 {
		f.synced = seq
	}
	return nil
}

// syncClosed makes layers durable that rotations closed.
func (f *Fork) syncClosed() error {
	for len(f.unsync) > 0 {
		u := f.unsync[0]
		for _, kind := range [...]int{fileData, fileJournal} {
			size, err := u.l.size(kind)
			if err != nil {
				return err
			}
			if size == 0 || kind == fileData && !u.data {
				continue
			}
			h, err := u.l.acquire(kind)
			if err != nil {
				return err
			}
			err = h.Datasync()
			u.l.done(kind)
			if err != nil {
				return err
			}
		}
		if err := f.fs.SyncDir(u.l.dir); err != nil {
			return err
		}
		f.unsync = f.unsync[1:]
	}
	return nil
}

// syncNames makes the layer's files findable after a power cut, and first what names the fork.
func (f *Fork) syncNames() error {
	if f.cfg.BeforeSync != nil {
		if err := f.cfg.BeforeSync(); err != nil {
			return err
		}
	}
	if err := f.fs.SyncDir(f.log.l.dir); err != nil {
		return err
	}
	return f.fs.SyncDir(filepath.Dir(f.log.l.dir))
}

// syncMark appends a mark and returns its sequence number. f.mu is held.
func (w *writer) syncMark(covered uint64) (uint64, error) {
	if err := w.writable(); err != nil {
		return 0, err
	}
	w.begin()
	defer w.end()
	w.freeing = true
	e := w.rec.Add(journal.Sync)
	e.Off, e.Len = int64(covered), int64(w.f.log.durable)
	w.quiet = true
	err := w.commit(nil, 0)
	return w.f.log.seq - 1, err
}

// failed remembers an error after which the fork can't be written until it is opened again: a failed fdatasync may
// have dropped what it should have written.
func (f *Fork) failed(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failedLocked(&BrokenError{Cause: err})
}

const (
	// reclaimAt (64 MiB) of dead bytes start a sync in the background, so that space comes back without any fsync.
	reclaimAt = 64 << 20
	// punchMin (256 KiB) is the smallest free run that is given back to the file system.
	punchMin = 256 << 10
)

// reclaim makes dead runs of the data file reusable and gives long ones back. It reports whether there were any.
func (f *Fork) reclaim() bool {
	if !f.syncMu.TryLock() {
		return false
	}
	defer f.syncMu.Unlock()
	f.mu.Lock()
	some := f.space.limboN > 0 || len(f.w.pending) > 0 || len(f.space.free) > 0 || len(f.space.marked) > 0 || len(f.space.waiting) > 0
	f.mu.Unlock()
	if !some || f.syncLocked() != nil {
		return false
	}
	f.punch()
	return true
}

// punch gives long free runs back to the file system. f.syncMu is held.
func (f *Fork) punch() {
	var done []span
	for {
		f.mu.Lock()
		f.space.settle()
		s, ok := f.space.takeLarge(pageSize)
		d := f.log.d
		f.mu.Unlock()
		if !ok {
			break
		}
		done = append(done, s)
		lo, hi := (s.off+pageSize-1)&^(pageSize-1), s.end&^(pageSize-1)
		if d != nil && hi > lo {
			d.PunchHole(lo, hi-lo) // without it the space is reused by this fork only
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range done {
		f.space.unused(s.off, s.end-s.off)
	}
}

// maybeReclaimLocked starts a reclaim when much is dead. f.mu is held.
func (f *Fork) maybeReclaimLocked() {
	if f.space.limboN < reclaimAt || f.txn || !f.reclaims.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer f.reclaims.Store(false)
		f.reclaim()
	}()
}

// Forget says that nobody holds an inode any more: one without a name ends. Unknown ones are ignored.
func (f *Fork) Forget(ino uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.w.s.orphans[ino]; !ok || f.closed || f.cfg.ReadOnly {
		return
	}
	if f.txn {
		f.forgets = append(f.forgets, ino)
		return
	}
	f.forgetLocked(ino)
}

// forgetMax ended orphans wait for the next record; more than forgetBytes in one don't wait.
const (
	forgetMax   = 256
	forgetBytes = 1 << 20
)

// forgetLocked ends an orphan with the next record that is written. f.mu is held.
func (f *Fork) forgetLocked(ino uint64) {
	for i := range f.w.pending {
		if f.w.pending[i].Ino == ino {
			return
		}
	}
	f.w.pending = append(f.w.pending, journal.Effect{Kind: journal.Drop, Ino: ino})
	n, ok := f.w.s.nodes.Get(ino)
	if len(f.w.pending) >= forgetMax || ok && n.ownBytes() > forgetBytes {
		f.w.flushPending() // on failure they stay pending
		f.maybeReclaimLocked()
	}
}

// flushForgets takes up what was forgotten during a transaction.
func (f *Fork) flushForgets() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.txn || f.closed {
		return
	}
	for _, ino := range f.forgets {
		if _, ok := f.w.s.orphans[ino]; ok {
			f.forgetLocked(ino)
		}
	}
	f.forgets = nil
}

// Orphans lists the inodes without a name: a server that took a mount over asks the kernel which are still held, and
// forgets the others.
func (f *Fork) Orphans() []uint64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var list []uint64
	for ino := range f.w.s.orphans {
		list = append(list, ino)
	}
	return list
}
