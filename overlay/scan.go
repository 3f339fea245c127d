package overlay

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"tine/overlay/journal"
)

// scanned is what a first pass over a journal tells.
type scanned struct {
	end  int64  // where the valid, committed records end
	next uint64 // sequence number there
	boot [16]byte
	mark uint64 // blocks named in records up to here are on disk
	bad  *journal.BadRecordError
	rd   *journal.Reader
	torn bool // the file has bytes behind end that are no zeroes
}

// openAt reads the records behind a trees file, or all.
func openAt(j io.ReaderAt, h *journal.Header, size int64, trees *treesHead) *journal.Reader {
	if trees.offset == 0 {
		return journal.NewReader(j, h, size)
	}
	return journal.NewReaderAt(j, h, size, trees.offset, trees.seq)
}

// scan reads all records once and finds where the trustworthy part ends. With apply, which changes s, the records are
// applied on the way.
func (f *Fork) scan(j io.ReaderAt, h *journal.Header, size int64, l *layer, trees *treesHead, s *state, apply func(*journal.Record, int64) error) (*scanned, error) {
	sc := &scanned{end: journal.HeaderSize, next: h.FirstSeq, boot: h.Boot}
	if trees.offset > 0 {
		// All before is on disk.
		sc.end, sc.next, sc.boot, sc.mark = trees.offset, trees.seq, trees.boot, trees.seq-1
	}
	sc.rd = openAt(j, h, size, trees)
	var rec journal.Record
	open := false // in a transaction
	var undo *state
	for {
		start, err := sc.rd.Next(&rec)
		if err == io.EOF {
			break
		}
		if errors.As(err, &sc.bad) {
			break
		}
		if err != nil {
			return nil, &IOError{Op: "reading the journal of", Err: err}
		}
		if rec.Begin == open {
			return nil, &CorruptError{Layer: l.id, What: fmt.Sprintf("record %d begins or continues a transaction wrongly", rec.Seq)}
		}
		if apply != nil {
			if rec.Begin && !rec.Commit {
				undo = s.clone()
			}
			if err := apply(&rec, start); err != nil {
				return nil, err
			}
		}
		open = !rec.Commit
		for i := range rec.Effects {
			switch e := &rec.Effects[i]; e.Kind {
			case journal.Session:
				sc.boot = e.Boot
			case journal.Sync:
				sc.mark = uint64(e.Off)
			}
		}
		if !open {
			sc.end, sc.next = sc.rd.Offset(), rec.Seq+1
		}
	}
	if open && undo != nil {
		*s = *undo // it never happened
	}
	if err := f.judge(sc, l); err != nil {
		return nil, err
	}
	sc.torn = sc.bad != nil || sc.end != sc.rd.Offset()
	if sc.boot != f.boot {
		if err := f.verify(j, h, sc, l, trees); err != nil {
			return nil, err
		}
	}
	return sc, nil
}

// judge tells a torn end from damage. In this boot, whatever stands before a valid record was written whole. After a
// power cut blocks of the unsynced end may be missing in any order, so only a later sync mark that says that the
// bad record was on disk proves damage.
func (f *Fork) judge(sc *scanned, l *layer) error {
	if sc.bad == nil {
		return nil
	}
	trusted := sc.boot == f.boot
	at, err := sc.rd.FindLater(func(r *journal.Record) bool {
		if trusted {
			return true
		}
		for i := range r.Effects {
			if e := &r.Effects[i]; e.Kind == journal.Sync && uint64(e.Len) >= sc.bad.Seq {
				return true
			}
		}
		return false
	})
	if err != nil {
		return &IOError{Op: "reading the journal of", Err: err}
	}
	if at != 0 {
		return &CorruptError{Layer: l.id, What: fmt.Sprintf("valid record at byte %d behind a bad one", at), Err: sc.bad}
	}
	return nil
}

// verify compares the blocks that the last sync mark doesn't cover with their checksums, and cuts the journal at the
// first that the power cut took.
func (f *Fork) verify(j io.ReaderAt, h *journal.Header, sc *scanned, l *layer, trees *treesHead) error {
	rd := openAt(j, h, sc.end, trees)
	var rec journal.Record
	var buf []byte
	cut, cutSeq := rd.Offset(), uint64(0) // set by the first record, which begins a transaction
	for {
		start, err := rd.Next(&rec)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &CorruptError{Layer: l.id, What: "changed while it was read", Err: err}
		}
		if rec.Begin {
			cut, cutSeq = start, rec.Seq
		}
		for i := range rec.Effects {
			e := &rec.Effects[i]
			if e.Kind != journal.Block || rec.Seq <= sc.mark {
				continue
			}
			if e.Len > maxRun {
				sc.end, sc.next, sc.torn = cut, cutSeq, true
				return nil
			}
			if int64(cap(buf)) < e.Len {
				buf = make([]byte, e.Len)
			}
			buf = buf[:e.Len]
			err := l.readAt(fileData, buf, e.Loc)
			if err == nil && journal.CRC(buf) == e.CRC {
				continue
			}
			if err != nil && err != io.ErrUnexpectedEOF && !errors.Is(err, fs.ErrNotExist) {
				return &IOError{Op: "verifying", Ino: e.Ino, Err: err}
			}
			sc.end, sc.next, sc.torn = cut, cutSeq, true
			return nil
		}
	}
}

// gap decides about a layer that doesn't begin where the one below it ends. After a power cut the one below may have
// lost its end; then nothing of this one can count, unless a sync mark promised it.
func (f *Fork) gap(h *journal.Header, sc *scanned, l *layer, seq uint64) error {
	what := fmt.Sprintf("begins with record %d where %d is next", h.FirstSeq, seq)
	if h.FirstSeq < seq || h.Boot == f.boot || sc.mark > 0 {
		return &CorruptError{Layer: l.id, What: what}
	}
	return nil
}

// headless decides about a journal whose header is zeroes. A power cut may take an unsynced header and leave what was
// written after it; then nothing of the layer counts. A later sync mark, or a record of this boot, proves damage.
func (f *Fork) headless(j io.ReaderAt, l *layer, size int64, seq uint64) error {
	rd := journal.NewReader(j, &journal.Header{Layer: l.id, FirstSeq: seq}, size)
	at, err := rd.FindLater(func(r *journal.Record) bool {
		for i := range r.Effects {
			switch e := &r.Effects[i]; e.Kind {
			case journal.Sync:
				return e.Len > 0
			case journal.Session:
				return e.Boot == f.boot
			}
		}
		return false
	})
	if err != nil {
		return &IOError{Op: "reading the journal of", Err: err}
	}
	if at != 0 {
		return &CorruptError{Layer: l.id, What: fmt.Sprintf("valid record at byte %d and no header", at)}
	}
	return nil
}
