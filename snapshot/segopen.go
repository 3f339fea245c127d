package snapshot

import (
	"crypto/rand"
	"encoding/binary"
	"hash/crc32"
	"os"
	"slices"

	"tine/snapshot/content"
	"tine/snapshot/durable"
)

// openLocked takes over the smallest segment that no process has locked, or makes a new one.
func (w *segWriter) openLocked() error {
	s := w.store
	if _, err := s.segs.reload(); err != nil { // so that the tail behind the index is known
		return err
	}
	if _, err := s.mkdir("segments"); err != nil {
		return err
	}
	ents, err := s.readDir("segments")
	if err != nil {
		return err
	}
	for _, e := range ents {
		name, ok := parseSegFile(e.Name())
		if !ok {
			continue
		}
		if st, err := e.Info(); err != nil || st.Size() >= segmentLimit/2 {
			continue
		}
		if ok, err := w.adoptLocked(name); ok || err != nil {
			return err
		}
	}
	return w.createLocked()
}

func (w *segWriter) createLocked() error {
	s := w.store
	var r [8]byte
	rand.Read(r[:])
	name := segName(binary.LittleEndian.Uint64(r[:]))
	path := s.path("segments", segFile(name))
	f, err := s.fs.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = durable.TryLockFile(f, durable.Exclusive); err == nil {
		if _, err = f.WriteAt(encodeSegHeader(name), 0); err == nil {
			err = s.fs.SyncDir(s.path("segments"))
		}
	}
	if err != nil {
		f.Close()
		_ = s.fs.Remove(path)
		return err
	}
	w.openSegment = openSegment{name: name, file: f, end: segHeaderLen, idx: segHeaderLen, begun: segHeaderLen}
	return nil
}

// adoptLocked locks a segment of a process that has ended. Whole records behind its index are kept, what follows them is a
// write that was cut short and goes. ok is false if the segment can't be had.
func (w *segWriter) adoptLocked(name segName) (ok bool, err error) {
	s := w.store
	f, err := s.fs.OpenFile(s.path("segments", segFile(name)), os.O_RDWR, 0)
	if err != nil {
		return false, nil
	}
	defer func() {
		if !ok {
			f.Close()
		}
	}()
	if durable.TryLockFile(f, durable.Exclusive) != nil {
		return false, nil
	}
	head := make([]byte, segHeaderLen)
	if content.ReadFull(f, head, 0) != nil || checkSegHeader(head, name) != nil {
		return false, nil // fsck's
	}
	// The last owner may have published after we looked; and compaction may have removed the file before we locked it.
	if _, err := s.segs.reload(); err != nil {
		return false, err
	}
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	if now, err := s.fs.Stat(s.path("segments", segFile(name))); err != nil || identify(now) != identify(st) {
		return false, nil
	}
	covered, gap := s.segs.covered(name)
	if gap || covered > st.Size() {
		return false, nil // an index is missing, or the file was cut: fsck's
	}
	tail, end := scanRecords(f, name, covered, st.Size())
	if end < st.Size() {
		if err := f.Truncate(end); err != nil {
			return false, err
		}
	}
	g := &s.segs
	g.mu.Lock()
	for _, k := range tail {
		g.pending[k.key] = append(slices.Clip(g.pending[k.key]), k)
	}
	g.mu.Unlock()
	w.openSegment = openSegment{name: name, file: f, end: end, idx: covered, begun: end}
	return true, nil
}

// covered is the end of what name's index files cover from its start on; gap tells of a hole before a later one.
func (g *segments) covered(name segName) (end int64, gap bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	end = segHeaderLen
	for _, r := range dropCovered(slices.Clone(g.runs)) { // sorted by start
		if r.seg == name {
			gap = gap || r.from > end
			end = max(end, r.to)
		}
	}
	for file := range g.broken {
		if r, ok := parseRunName(file); ok && r.seg == name {
			gap = true
		}
	}
	return end, gap
}

// scanRecords reads records from off on and returns the well-formed ones up to the first that is not, and where that is.
func scanRecords(f durable.File, name segName, off, size int64) (list []keyed, end int64) {
	head := make([]byte, recHeaderLen)
	for off+recHeaderLen <= size {
		if content.ReadFull(f, head, off) != nil {
			break
		}
		rec, err := decodeRecord(head)
		if err != nil || off+rec.span() > size {
			break
		}
		data := make([]byte, rec.length)
		if content.ReadFull(f, data, off+recHeaderLen) != nil || crc32.Checksum(data, crcTable) != rec.crc {
			break
		}
		list = append(list, keyed{rec.key, location{seg: name, off: off, length: rec.length, size: rec.size, kind: rec.kind, sha256: rec.sha256}})
		off += rec.span()
	}
	return list, off
}
