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
	// In the boot that wrote the layer all that is whole counts: one pass reads and applies it.
	trusted := h.Boot == f.boot && trees.offset == 0 && h.FirstSeq == *seq || trees.offset > 0 && trees.boot == f.boot
	apply := func(r *journal.Record, start int64) error { return f.replay(s, r, index, start, l) }
	var sc *scanned
	if trusted {
		sc, err = f.scan(j, &h, st.Size(), l, trees, s, apply)
	} else {
		sc, err = f.scan(j, &h, st.Size(), l, trees, nil, nil)
	}
	if err != nil {
		return end, err
	}
	if trees.offset == 0 && h.FirstSeq != *seq {
		return end, f.gap(&h, sc, l, *seq)
	}
	if !trusted {
		if err := f.replayAll(openAt(j, &h, sc.end, trees), l, apply); err != nil {
			return end, err
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

// replay applies one record that was read.
func (f *Fork) replay(s *state, r *journal.Record, index uint32, start int64, l *layer) error {
	if err := s.apply(r, index, start); err != nil {
		if errors.As(err, new(*IOError)) {
			return err // the base can't be read
		}
		return &CorruptError{Layer: l.id, What: "record that doesn't fit", Err: err}
	}
	for i := range r.Effects {
		if e := &r.Effects[i]; e.Kind == journal.Session {
			f.log.conn = e.Conn
		}
	}
	if r.HasReply {
		f.replies.add(f.log.conn, r.Unique, r.Value)
	}
	return nil
}

// replayAll applies what a first pass found to count.
func (f *Fork) replayAll(rd *journal.Reader, l *layer, apply func(*journal.Record, int64) error) error {
	var rec journal.Record
	for {
		start, err := rd.Next(&rec)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &CorruptError{Layer: l.id, What: "changed while it was read", Err: err}
		}
		if err := apply(&rec, start); err != nil {
			return err
		}
	}
}
