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
	f.mu.RLock()
	older := len(f.unsync)
	f.mu.RUnlock()
	if f.synced >= target && target > 0 && older == 0 {
		return nil // somebody's sync that began after our last change
	}
	return f.syncLocked()
}

// syncing is a sync of the live layer in progress. Its files are its own to use: a rotation may close the layer
// meanwhile.
type syncing struct {
	l       *layer
	j, d    *openFile // d is nil if no block was written since the last sync
	covered uint64    // the last record when it began
	names   int
	unnamed bool
}

// syncLocked makes everything up to now durable, and says so with a sync mark. f.syncMu is held.
func (f *Fork) syncLocked() error {
	if err := f.syncClosed(); err != nil {
		return f.failed(err)
	}
	s, err := f.beginSync()
	if err != nil || s == nil {
		return err
	}
	defer s.j.done()
	if s.d != nil {
		defer s.d.done()
	}

	// fdatasync(data), then the mark, then fdatasync(journal): a mark on disk means blocks on disk.
	if s.d != nil {
		if err := s.d.f.Datasync(); err != nil {
			return f.failed(err)
		}
	}
	if s.unnamed {
		if err := f.syncNames(s.l); err != nil {
			return f.failed(err)
		}
	}
	f.mu.Lock()
	rotated := f.log.l != s.l
	seq := s.covered
	if !rotated {
		seq, err = f.w.syncMark(s.covered)
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	// When a rotation closed the layer meanwhile, it has no mark, but all of it is on disk all the same.
	if err := s.j.f.Datasync(); err != nil {
		return f.failed(err)
	}
	if rotated {
		f.synced = max(f.synced, seq)
		return nil
	}
	f.mu.Lock()
	if g := &f.log; g.l == s.l {
		g.durable, g.namesSynced = seq, s.names
		f.space.settle()
	}
	f.mu.Unlock()
	// Changes that came in between covered and the mark have their records on disk, but perhaps not their blocks.
	f.synced = s.covered
	if seq == s.covered+1 {
		f.synced = seq
	}
	return nil
}

// beginSync notes what the sync will cover; nil if the live layer has nothing.
func (f *Fork) beginSync() (*syncing, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.w.writable(); err != nil {
		return nil, err
	}
	if err := f.w.flushPending(); err != nil {
		return nil, err
	}
	g := &f.log
	if g.j == nil && g.tail == 0 {
		return nil, nil
	}
	if err := g.open(f); err != nil {
		return nil, err
	}
	s := &syncing{l: g.l, covered: g.seq - 1, names: g.names, unnamed: g.names > g.namesSynced}
	var err error
	if s.j, err = g.l.acquire(fileJournal); err != nil {
		return nil, err
	}
	if g.written {
		if s.d, err = g.l.acquire(fileData); err != nil {
			s.j.done()
			return nil, err
		}
		g.written = false
	}
	// What died up to here is marked: a block that was born later isn't covered by this mark either.
	f.space.mark()
	return s, nil
}

// syncClosed makes layers durable that rotations closed. f.syncMu is held.
func (f *Fork) syncClosed() error {
	for {
		f.mu.RLock()
		if len(f.unsync) == 0 {
			f.mu.RUnlock()
			return nil
		}
		u := f.unsync[0]
		f.mu.RUnlock()
		if err := f.syncClosedLayer(u); err != nil {
			return err
		}
		f.mu.Lock()
		f.unsync = f.unsync[1:]
		f.mu.Unlock()
	}
}

func (f *Fork) syncClosedLayer(u unsynced) error {
	made := false
	for _, kind := range [...]int{fileData, fileJournal} {
		size, err := u.l.size(kind)
		if err != nil {
			return err
		}
		made = made || size > 0
		if size == 0 || kind == fileData && !u.data {
			continue
		}
		o, err := u.l.acquire(kind)
		if err != nil {
			return err
		}
		err = o.f.Datasync()
		o.done()
		if err != nil {
			return err
		}
	}
	if !made {
		return nil // a layer that was never written to
	}
	return f.syncNames(u.l)
}

// syncNames makes the layer's files findable after a power cut, and first what names the fork.
func (f *Fork) syncNames(l *layer) error {
	if f.cfg.BeforeSync != nil {
		if err := f.cfg.BeforeSync(); err != nil {
			return err
		}
	}
	if err := f.fs.SyncDir(l.dir); err != nil {
		return err
	}
	return f.fs.SyncDir(filepath.Dir(l.dir))
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
	// punchMin (32 KiB) is the smallest free run that is given back to the file system.
	punchMin = 32 << 10
)

// reclaim makes dead runs of the data file reusable and gives long ones back. It reports whether there were any.
func (f *Fork) reclaim() bool {
	if !f.syncMu.TryLock() {
		return false
	}
	defer f.syncMu.Unlock()
	f.mu.Lock()
	waste := f.wastedLocked()
	journal := waste > pageSize && waste > 2*f.w.s.inline
	data := f.space.limboN > 0 || len(f.w.pending) > 0 || len(f.space.free) > 0 || len(f.space.marked) > 0 || len(f.space.waiting) > 0
	f.mu.Unlock()
	done := false
	if data && f.syncLocked() == nil {
		f.punch()
		done = true
	}
	if journal && f.compact() == nil {
		done = true
	}
	return done
}

// punch gives long free runs back to the file system. f.syncMu is held.
func (f *Fork) punch() {
	f.mu.Lock()
	sp := f.space // a rotation may replace it meanwhile: then this one's runs are nobody's
	var d *openFile
	if f.log.d != nil {
		d, _ = f.log.l.acquire(fileData)
	}
	f.mu.Unlock()
	if d == nil {
		return
	}
	defer d.done()
	var done []span
	for {
		f.mu.Lock()
		sp.settle()
		s, ok := sp.takeLarge(punchMin)
		closed := sp != f.space
		f.mu.Unlock()
		if !ok || closed {
			break
		}
		done = append(done, s)
		if lo, hi := (s.off+pageSize-1)&^(pageSize-1), s.end&^(pageSize-1); hi > lo {
			d.f.PunchHole(lo, hi-lo) // without it the space is reused by this fork only
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range done {
		sp.unused(s.off, s.end-s.off)
	}
}

// maybeReclaimLocked starts a reclaim when much is dead. f.mu is held.
func (f *Fork) maybeReclaimLocked() {
	waste := f.wastedLocked()
	if f.space.limboN < reclaimAt && (waste < compactAfter || waste < 2*f.w.s.inline) || f.txn || f.closed {
		return
	}
	if f.reclaims.CompareAndSwap(false, true) {
		f.background.Go(func() {
			defer f.reclaims.Store(false)
			f.reclaim()
		})
	}
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
