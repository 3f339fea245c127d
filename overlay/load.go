package overlay

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"tine/overlay/journal"
)

// load builds the live state from the layers.
func (f *Fork) load() error {
	s, from, head, err := f.loadTrees()
	if err != nil {
		return err
	}
	seq := max(head.seq, 1)
	var m *moment
	for i := from; i < len(f.table); i++ {
		h := &treesHead{}
		if i == from {
			h = head
		}
		end, err := f.loadLayer(s, f.table[i], uint32(i), &seq, h)
		if err != nil {
			return err
		}
		if end.at > 0 && i == len(f.table)-2 && f.replayIsLong() && !f.cfg.ReadOnly {
			m = f.momentOf(s, f.table[:i+1], end.at, seq, end.boot)
		}
	}
	if err := f.start(s, seq); err != nil {
		return err
	}
	if m != nil {
		f.writeTreesLater(m)
	}
	return nil
}

// loadTrees finds the newest trees file. from is the layer that a replay begins with.
func (f *Fork) loadTrees() (s *state, from int, _ *treesHead, err error) {
	for i := len(f.table) - 1; i >= 0; i-- {
		s := newState(f.cfg.Base)
		h, ok, err := f.table[i].readTrees(s)
		if err != nil {
			return nil, 0, nil, err
		}
		if !ok {
			continue
		}
		l := f.table[i]
		if h.base != f.cfg.BaseID {
			return nil, 0, nil, &BaseError{Layer: l.id, What: "base", Has: h.base, Want: f.cfg.BaseID}
		}
		if len(h.layers) != i+1 {
			return nil, 0, nil, &CorruptError{Layer: l.id, What: "trees file of another chain of layers"}
		}
		for k, id := range h.layers {
			if f.table[k].id != id {
				return nil, 0, nil, &CorruptError{Layer: l.id, What: "trees file of another chain of layers"}
			}
		}
		f.replies, f.log.conn = h.replies, h.replies.conn
		return s, i, &h, nil
	}
	return newState(f.cfg.Base), 0, &treesHead{}, nil
}

// start makes s the live state; the next record has number seq.
func (f *Fork) start(s *state, seq uint64) error {
	f.w = writer{f: f, s: s}
	g := &f.log
	g.l, g.index, g.seq = f.table[len(f.table)-1], uint32(len(f.table)-1), seq
	f.synced = 0
	if len(s.orphans) > 0 && !f.cfg.KeepOrphans {
		if err := s.dropOrphans(); err != nil {
			return err
		}
		if !f.cfg.ReadOnly {
			f.w.pending = append(f.w.pending, journal.Effect{Kind: journal.DropOrphans})
		}
	}
	if err := f.loadSpace(); err != nil {
		return err
	}
	s.dead = f.deadLocked
	return nil
}

// deadLocked is the live state's dead. f.mu is held.
func (f *Fork) deadLocked(e extent) {
	if e.kind == extBlock && e.layer == f.log.index {
		f.space.kill(e.loc, e.len)
	}
}

// loadSpace finds the runs of the live data file that show nowhere. Their death may not be durable: they wait for a
// sync mark.
func (f *Fork) loadSpace() error {
	size, err := f.log.l.size(fileData)
	if err != nil {
		return err
	}
	f.space = &space{tail: (size + pageSize - 1) &^ (pageSize - 1)}
	if f.space.tail == 0 {
		return nil
	}
	var live []span
	f.w.s.nodes.Scan(func(_ uint64, n *node) bool {
		n.ext.scan(0, func(e *extent) bool {
			if e.kind == extBlock && e.layer == f.log.index {
				live = append(live, span{e.loc, e.loc + e.len})
			}
			return true
		})
		return true
	})
	live = mergeSpans(live)
	at := int64(0)
	for _, l := range live {
		if at < l.off {
			f.space.kill(at, l.off-at)
		}
		at = max(at, l.end)
	}
	if at < f.space.tail {
		f.space.kill(at, f.space.tail-at)
	}
	return nil
}

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

// layerEnd is where a layer's records end, and whose the last are. Zero if it has none.
type layerEnd struct {
	at   int64
	boot [16]byte
}

// loadLayer replays one layer, from where its trees file ends if that has been loaded. seq is the next sequence
// number, before and after. end says where the layer's records end.
func (f *Fork) loadLayer(s *state, l *layer, index uint32, seq *uint64, trees *treesHead) (end layerEnd, err error) {
	live := index == uint32(len(f.table)-1)
	o, err := l.acquire(fileJournal)
	if errors.Is(err, fs.ErrNotExist) && trees.offset == 0 {
		return end, nil // not written to yet
	}
	if err != nil {
		return end, fmt.Errorf("opening layer %s: %w", l.id, err)
	}
	defer o.done()
	j := o.f
	st, err := j.Stat()
	if err != nil {
		return end, fmt.Errorf("opening layer %s: %w", l.id, err)
	}
	h, err := journal.ReadHeader(j)
	if err != nil && trees.offset > 0 {
		return end, &CorruptError{Layer: l.id, What: "header", Err: err}
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return end, nil // a crash while it was made: no record was ever acknowledged; writing starts over
	}
	if err == journal.ErrNoHeader {
		return end, f.headless(j, l, st.Size(), *seq)
	}
	var version *journal.VersionError
	if errors.As(err, &version) {
		return end, fmt.Errorf("layer %s: %w", l.id, err)
	}
	if err != nil {
		return end, &CorruptError{Layer: l.id, What: "header", Err: err}
	}
	if err := f.checkHeader(&h, l, index); err != nil {
		return end, err
	}
	if trees.offset > st.Size() {
		return end, &CorruptError{Layer: l.id, What: fmt.Sprintf("journal of %d bytes, its trees file stands at %d", st.Size(), trees.offset)}
	}
	sc, err := f.scan(j, &h, st.Size(), l, trees)
	if err != nil {
		return end, err
	}
	if trees.offset == 0 && h.FirstSeq != *seq {
		return end, f.gap(&h, sc, l, *seq)
	}
	rd := openAt(j, &h, sc.end, trees)
	var rec journal.Record
	for {
		start, err := rd.Next(&rec)
		if err == io.EOF {
			break
		}
		if err != nil {
			return end, &CorruptError{Layer: l.id, What: "changed while it was read", Err: err}
		}
		if err := s.apply(&rec, index, start); err != nil {
			if errors.As(err, new(*IOError)) {
				return end, err // the base can't be read
			}
			return end, &CorruptError{Layer: l.id, What: "record that doesn't fit", Err: err}
		}
		for i := range rec.Effects {
			if e := &rec.Effects[i]; e.Kind == journal.Session {
				f.log.conn = e.Conn
			}
		}
		if rec.HasReply {
			f.replies.add(f.log.conn, rec.Unique, rec.Value)
		}
	}
	*seq = sc.next
	if live {
		f.log.tail, f.log.size, f.log.dirty = sc.end, st.Size(), sc.torn
		f.log.start, f.log.boot = trees.offset, sc.boot
		return end, nil
	}
	f.replayBytes += sc.end - trees.offset
	f.replayLayers++
	if sc.boot == f.boot && sc.end > trees.offset {
		f.unsync = append(f.unsync, unsynced{l: l, data: true})
	}
	return layerEnd{sc.end, sc.boot}, nil
}

// openAt reads the records behind a trees file, or all.
func openAt(j io.ReaderAt, h *journal.Header, size int64, trees *treesHead) *journal.Reader {
	if trees.offset == 0 {
		return journal.NewReader(j, h, size)
	}
	return journal.NewReaderAt(j, h, size, trees.offset, trees.seq)
}

func (f *Fork) checkHeader(h *journal.Header, l *layer, index uint32) error {
	if h.Layer != l.id {
		return &BaseError{Layer: l.id, What: "id", Has: h.Layer.String(), Want: l.id.String()}
	}
	if h.Base != f.cfg.BaseID {
		return &BaseError{Layer: l.id, What: "base", Has: h.Base, Want: f.cfg.BaseID}
	}
	if index == uint32(len(f.table)-1) && h.Fork != f.cfg.ForkID {
		return &BaseError{Layer: l.id, What: "fork", Has: h.Fork, Want: f.cfg.ForkID}
	}
	var parent LayerID
	if index > 0 {
		parent = f.table[index-1].id
	}
	if h.Parent != parent {
		return &BaseError{Layer: l.id, What: "parent layer", Has: h.Parent.String(), Want: parent.String()}
	}
	return nil
}

// scan reads all records once and finds where the trustworthy part ends.
func (f *Fork) scan(j io.ReaderAt, h *journal.Header, size int64, l *layer, trees *treesHead) (*scanned, error) {
	sc := &scanned{end: journal.HeaderSize, next: h.FirstSeq, boot: h.Boot}
	if trees.offset > 0 {
		// All before is on disk.
		sc.end, sc.next, sc.boot, sc.mark = trees.offset, trees.seq, trees.boot, trees.seq-1
	}
	sc.rd = openAt(j, h, size, trees)
	var rec journal.Record
	open := false // in a transaction
	for {
		_, err := sc.rd.Next(&rec)
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
