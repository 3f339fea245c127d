package snapshot

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"slices"

	"tine/snapshot/content"
	"tine/snapshot/durable"
)

// segments checks every segment and its indexes.
func (c *checker) segments() error {
	s := c.s
	if c.opt.Repair {
		// Under the exclusive hold nobody publishes, but a process may still have a segment open for hydration.
		if err := s.Sync(); err != nil {
			return err
		}
		if _, err := s.cleanTemp(); err != nil {
			return err
		}
	}
	ents, err := s.readDir("segments")
	if err != nil {
		return err
	}
	have := map[segName]bool{}
	for _, e := range ents {
		name, ok := parseSegFile(e.Name())
		if !ok {
			continue
		}
		have[name] = true
		if err := c.segment(name); err != nil {
			return err
		}
	}
	s.segs.mu.RLock()
	runs := slices.Clone(s.segs.runs)
	s.segs.mu.RUnlock()
	for _, r := range runs {
		if !have[r.seg] {
			c.report(Problem{Kind: "index", Object: r.fileName(), Err: fmt.Errorf("its segment %s is missing", segFile(r.seg))})
		}
	}
	return nil
}

// segment compares a segment's records with its indexes. What is behind the last index is a writer's business.
func (c *checker) segment(name segName) error {
	s := c.s
	var runs []*run
	var broken []string
	s.segs.mu.RLock()
	for _, r := range s.segs.runs {
		if r.seg == name {
			runs = append(runs, r)
		}
	}
	for file := range s.segs.broken {
		if r, ok := parseRunName(file); ok && r.seg == name {
			broken = append(broken, file)
		}
	}
	s.segs.mu.RUnlock()

	f, err := s.fs.OpenFile(s.path("segments", segFile(name)), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // compacted meanwhile
	}
	if err != nil {
		c.report(Problem{Kind: "segment", Object: segFile(name), Err: err})
		return nil
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if len(runs) == 0 && len(broken) == 0 && st.Size() <= segHeaderLen {
		return nil // made, and its maker died before the first record was synced
	}
	head := make([]byte, segHeaderLen)
	if err = content.ReadFull(f, head, 0); err == nil {
		err = checkSegHeader(head, name)
	}
	if err != nil {
		c.report(Problem{Kind: "segment", Object: segFile(name), Err: err})
		return nil
	}
	var problems []Problem
	for _, r := range runs {
		for i := range r.len() {
			if err := c.ctx.Err(); err != nil {
				return err
			}
			c.stats.Stored++
			key, l := recordKey(r.entry(i)[:34]), r.location(i)
			if err := c.record(f, key, l); err != nil {
				problems = append(problems, Problem{Kind: "content", Object: key.id().String(), Err: fmt.Errorf("segment %s at %d: %w", name, l.off, err)})
			}
		}
	}
	for _, file := range broken {
		s.segs.mu.RLock()
		err := s.segs.broken[file]
		s.segs.mu.RUnlock()
		problems = append(problems, Problem{Kind: "index", Object: file, Err: err})
	}
	repaired := false
	if c.opt.Repair && len(problems) > 0 {
		if repaired, err = c.repair(name, f, st.Size(), runs, broken); err != nil {
			return fmt.Errorf("rebuild the index of segment %s: %w", name, err)
		}
	}
	for _, p := range problems {
		p.Repaired = repaired
		c.report(p)
	}
	return nil
}

// record verifies a record where an index says that it is.
func (c *checker) record(f durable.File, key recordKey, l location) error {
	head := make([]byte, recHeaderLen)
	if err := content.ReadFull(f, head, l.off); err != nil {
		return err
	}
	rec, err := decodeRecord(head)
	if err != nil {
		return err
	}
	if rec.key != key || rec.kind != l.kind || rec.length != l.length || rec.size != l.size || rec.sha256 != l.sha256 {
		return errors.New("the record is not the indexed one")
	}
	if !c.opt.Full {
		return nil
	}
	return c.recordData(f, rec, l.off)
}

// recordData verifies what a record holds against its checksum and its id.
func (c *checker) recordData(f durable.File, rec record, off int64) error {
	data := make([]byte, rec.length)
	if err := content.ReadFull(f, data, off+recHeaderLen); err != nil {
		return err
	}
	c.stats.Bytes += rec.length
	if crc32.Checksum(data, crcTable) != rec.crc {
		return errors.New("the checksum differs")
	}
	switch rec.kind {
	case kindBytes:
		return content.Verify(rec.key.id(), data)
	case kindObject:
		c.s.sums.drop(rec.key.id())
		r, err := c.s.openObject(rec.key.id(), rec.size)
		if err != nil {
			return err
		}
		return r.Close()
	}
	return nil
}

// repair replaces a segment's indexes by one of every record in it that is whole. done is false if another process is
// writing to the segment: it would write the old index again.
func (c *checker) repair(name segName, f durable.File, size int64, runs []*run, broken []string) (done bool, err error) {
	s := c.s
	s.out.mu.Lock()
	mine := s.out.file != nil && s.out.name == name
	s.out.mu.Unlock()
	if !mine && durable.TryLockFile(f, durable.Exclusive) != nil {
		return false, nil
	}
	if err := f.Datasync(); err != nil {
		return false, s.fail(err)
	}
	list, end := c.salvage(f, name, size, runs)
	if mine {
		end = min(end, s.out.end)
	}
	for _, r := range runs {
		end = max(end, r.to)
		broken = append(broken, r.fileName())
	}
	all := newRun(name, segHeaderLen, end, list)
	if err := s.out.writeRun(all); err != nil {
		return false, err
	}
	for _, file := range broken {
		if file != all.fileName() {
			if err := s.fs.Remove(s.path("segments", file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
		}
	}
	s.segs.mu.Lock()
	s.segs.runs = slices.DeleteFunc(slices.Clone(s.segs.runs), func(r *run) bool { return r.seg == name })
	s.segs.mu.Unlock()
	_, err = s.segs.reload()
	return err == nil, err
}

// salvage finds the whole records of a segment. Where a header is damaged the next record is found by an index, or else by
// its magic; one found by its magic may be part of a file's contents made to look like a record, so that only those count
// whose data are verified by their id.
func (c *checker) salvage(f durable.File, name segName, size int64, runs []*run) (list []keyed, end int64) {
	indexed := map[int64]bool{}
	for _, r := range runs {
		for i := range r.len() {
			indexed[r.location(i).off] = true
		}
	}
	head := make([]byte, recHeaderLen)
	sure := true
	end = segHeaderLen
	for off := int64(segHeaderLen); off+recHeaderLen <= size && c.ctx.Err() == nil; {
		if indexed[off] {
			sure = true
		}
		if content.ReadFull(f, head, off) != nil {
			break
		}
		rec, err := decodeRecord(head)
		if err != nil || off+rec.span() > size {
			sure = false
			off += recAlign
			continue
		}
		verified := rec.kind == kindBytes || rec.kind == kindObject || rec.kind == kindChunks
		if (sure || verified) && c.recordData(f, rec, off) == nil {
			list = append(list, keyed{rec.key, location{seg: name, off: off, length: rec.length, size: rec.size, kind: rec.kind, sha256: rec.sha256}})
			end = off + rec.span()
		}
		off += rec.span()
	}
	return list, end
}
