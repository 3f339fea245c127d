package snapshot

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"tine/snapshot/durable"
)

// A writer goes on to another segment at this size in bytes: large enough that a store has few files, small enough
// that compacting one is quick.
var segmentLimit int64 = 256 << 20

// mergeAt is the number of index files of one segment that are merged into one. Each Sync writes one, so that it costs
// what is new; merging keeps look-ups short.
const mergeAt = 8

// segWriter appends to the one segment that this process has locked.
//
// Lock order: syncMu, then mu, then segments.mu.
type segWriter struct {
	store *Store

	syncMu sync.Mutex // one Sync at a time; mu is not held during its fdatasync

	mu          sync.Mutex
	openSegment               // file is nil until the first append
	full        []openSegment // until the next Sync: no more appends
	buf         []byte        // of writeLocked
}

type openSegment struct {
	name segName
	file durable.File // locked exclusively
	end  int64        // where the next record goes
	idx  int64        // records before this offset are in an index file

	begun int64 // the disk was told to write what is before this offset
}

// append writes one record. It is readable at once by this process, durable and visible to others after Sync.
func (w *segWriter) append(rec record, data []byte) error {
	s := w.store
	if err := s.writable(); err != nil {
		return err
	}
	rec.length = int64(len(data))
	if rec.length > maxRecord {
		return fmt.Errorf("record of %d bytes: the largest is %d", rec.length, maxRecord)
	}
	rec.crc = crc32.Checksum(data, crcTable)

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil && w.end >= segmentLimit {
		w.retireLocked()
	}
	if w.file == nil {
		if err := w.openLocked(); err != nil {
			return fmt.Errorf("open a segment: %w", err)
		}
	}
	if err := w.writeLocked(&rec, data); err != nil {
		// What was written in part must not stay behind a later record: it could look like one.
		if w.file.Truncate(w.end) != nil {
			w.retireLocked()
		}
		return fmt.Errorf("append to segment %s: %w", w.name, err)
	}
	loc := location{seg: w.name, off: w.end, length: rec.length, size: rec.size, kind: rec.kind, sha256: rec.sha256}
	w.end += rec.span()
	g := &s.segs
	g.mu.Lock()
	g.pending[rec.key] = append(slices.Clip(g.pending[rec.key]), keyed{rec.key, loc})
	g.mu.Unlock()
	return nil
}

// copyLimit (64 KiB) is the largest record that is copied to be written at once; larger ones take a second call.
const copyLimit = 64 << 10

// writeLocked writes a record at the segment's end.
func (w *segWriter) writeLocked(rec *record, data []byte) error {
	if rec.span() > copyLimit {
		if _, err := w.file.WriteAt(data, w.end+recHeaderLen); err != nil {
			return err
		}
		if pad := rec.span() - recHeaderLen - rec.length; pad > 0 {
			if _, err := w.file.WriteAt(make([]byte, pad), w.end+recHeaderLen+rec.length); err != nil {
				return err
			}
		}
		data = nil
	}
	n := recHeaderLen
	if data != nil {
		n = int(rec.span())
	}
	w.buf = slices.Grow(w.buf[:0], n)[:n]
	rec.encode(w.buf)
	clear(w.buf[recHeaderLen+copy(w.buf[recHeaderLen:], data):])
	if _, err := w.file.WriteAt(w.buf, w.end); err != nil {
		return err
	}
	w.startWriteback(w.end + rec.span())
	return nil
}

// writebackStep (8 MiB) is how much is appended before the disk is told to begin with it, so that a large seal hashes and writes
// at once and little is left for the sync.
const writebackStep = 8 << 20

func (w *segWriter) startWriteback(end int64) {
	if end-w.begun >= writebackStep {
		// A hint: the sync is what counts, and it reports what goes wrong.
		_ = unix.SyncFileRange(int(w.file.Fd()), w.begun, end-w.begun, unix.SYNC_FILE_RANGE_WRITE)
		w.begun = end
	}
}

// Sync makes all that was stored before the call durable and visible to other processes.
func (s *Store) Sync() error {
	if err := s.writable(); err != nil {
		return err
	}
	w := &s.out
	w.syncMu.Lock()
	defer w.syncMu.Unlock()
	owed := s.owed.Swap(false) // what is Put from here on is owed again
	err := w.sync()
	if err != nil && owed {
		s.owed.Store(true)
	}
	return err
}

// sync is Sync with syncMu held.
func (w *segWriter) sync() error {
	s := w.store
	if err := s.syncDirs(); err != nil {
		return err
	}
	w.mu.Lock()
	todo := slices.Clone(w.full)
	if w.file != nil {
		todo = append(todo, w.openSegment)
	}
	w.mu.Unlock()
	for _, seg := range todo {
		if seg.idx < seg.end {
			if err := w.publish(seg); err != nil {
				return err
			}
		}
		w.mu.Lock()
		if w.file != nil && w.name == seg.name {
			w.idx = seg.end
		}
		w.full = slices.DeleteFunc(w.full, func(f openSegment) bool { return f.name == seg.name && f.file.Close() == nil })
		w.mu.Unlock()
	}
	return nil
}

// tail is how much the writer has appended behind its index, in bytes.
func (w *segWriter) tail() (n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, seg := range append(slices.Clone(w.full), w.openSegment) {
		n += seg.end - seg.idx
	}
	return n
}

// syncDirs makes the names of new objects durable.
func (s *Store) syncDirs() error {
	s.dirsMu.Lock()
	dirs := s.unsync
	s.unsync = map[string]bool{}
	s.dirsMu.Unlock()
	for dir := range dirs {
		if err := s.fs.SyncDir(dir); err != nil {
			return s.fail(fmt.Errorf("sync %s: %w", dir, err))
		}
	}
	return nil
}

// publish makes what is new in a segment durable and indexed. syncMu is held.
func (w *segWriter) publish(seg openSegment) error {
	s, g := w.store, &w.store.segs
	if err := seg.file.Datasync(); err != nil {
		return s.fail(fmt.Errorf("sync segment %s: %w", seg.name, err))
	}
	var list []keyed
	g.mu.RLock()
	for _, ks := range g.pending {
		for _, k := range ks {
			if seg.isNew(k.loc) {
				list = append(list, k)
			}
		}
	}
	g.mu.RUnlock()
	r := newRun(seg.name, seg.idx, seg.end, list)
	if err := w.writeRun(r); err != nil {
		return err
	}
	g.mu.Lock()
	g.runs = append(slices.Clip(g.runs), r)
	for _, k := range list {
		left := slices.DeleteFunc(slices.Clone(g.pending[k.key]), func(p keyed) bool { return p.loc == k.loc })
		if len(left) == 0 {
			delete(g.pending, k.key)
		} else {
			g.pending[k.key] = left
		}
	}
	var mine []*run
	for _, r := range g.runs {
		if r.seg == seg.name {
			mine = append(mine, r)
		}
	}
	g.mu.Unlock()
	if len(mine) < mergeAt {
		return nil
	}
	return w.merge(mine)
}

func (seg *openSegment) isNew(l location) bool {
	return l.seg == seg.name && l.off >= seg.idx && l.off < seg.end
}

// retireLocked ends appending to the segment; the next Sync publishes and closes it.
func (w *segWriter) retireLocked() {
	w.full = append(w.full, w.openSegment)
	w.openSegment = openSegment{}
}

func (w *segWriter) writeRun(r *run) error {
	out, err := w.store.writer()
	if err != nil {
		return err
	}
	if err := out.WriteFile(w.store.path("segments", r.fileName()), r.encode(), 0o444); err != nil {
		return fmt.Errorf("publish a segment index: %w", err)
	}
	return nil
}

// merge replaces index files of the writer's own segment by one. A crash between the two steps leaves some that are
// covered by another: harmless, and removed by the next merge.
func (w *segWriter) merge(runs []*run) error {
	g := &w.store.segs
	all := mergeRuns(runs)
	if err := w.writeRun(all); err != nil {
		return err
	}
	g.mu.Lock()
	g.runs = append(slices.DeleteFunc(slices.Clone(g.runs), func(r *run) bool { return slices.Contains(runs, r) }), all)
	g.mu.Unlock()
	for _, r := range runs {
		if r.fileName() != all.fileName() {
			if err := w.store.fs.Remove(w.store.path("segments", r.fileName())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func (w *segWriter) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	if w.file != nil {
		w.retireLocked()
	}
	for _, seg := range w.full {
		errs = append(errs, seg.file.Close())
	}
	w.full = nil
	return errors.Join(errs...)
}
