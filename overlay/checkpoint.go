package overlay

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"tine/snapshot/durable"
)

var (
	// After rotations a closed layer gets a trees file once a replay would read 1 MiB or 32 layers. Tests lower them.
	treesAfterBytes  int64 = 1 << 20
	treesAfterLayers       = 32
)

const (
	// A live layer gets one when its journal holds 16 MiB that are dead and twice what isn't, and the dead part is
	// given back.
	compactAfter = 16 << 20
)

// moment is a state and where in the journals it is.
type moment struct {
	v    *View
	head treesHead
	l    *layer
}

// momentLocked notes the live state as it is, at offset of table's last layer. f.mu is held.
func (f *Fork) momentLocked(table []*layer, offset int64, boot [16]byte) *moment {
	return f.momentOf(f.w.s, table, offset, f.log.seq, boot)
}

// momentOf notes s, the state before record seq, which is at offset of table's last layer. boot is of the last
// Session before it. Who owns s calls it.
func (f *Fork) momentOf(s *state, table []*layer, offset int64, seq uint64, boot [16]byte) *moment {
	l := table[len(table)-1]
	m := &moment{v: f.viewOf(s, table, seq), l: l}
	m.head = treesHead{layer: l.id, base: f.cfg.BaseID, seq: seq, offset: offset, boot: boot, layers: m.v.Layers()}
	m.head.replies.conn = f.log.conn
	if r := &f.replies; r.conn == f.log.conn {
		m.head.replies = replies{conn: r.conn, order: slices.Clone(r.order), next: r.next, value: maps.Clone(r.value)}
	}
	return m
}

// writeTrees makes the moment's layers durable and then writes its trees file. f.syncMu is held.
func (f *Fork) writeTrees(m *moment) error {
	if err := f.syncLocked(); err != nil {
		return err
	}
	b := encodeTrees(&m.head, m.v.s)
	return durable.WriteFrom(f.fs, m.l.dir+"/"+treesName, bytes.NewReader(b), 0o644)
}

// treesAfterRotation starts the writing of the trees of the layer that was just closed, when a restart would have
// much to replay. f.mu is held; old is the closed layer's log.
func (f *Fork) treesAfterRotationLocked(old *log) {
	f.replayBytes += old.tail - old.start
	f.replayLayers++
	if old.tail > 0 && f.replayIsLong() {
		f.writeTreesLater(f.momentLocked(f.table[:len(f.table)-1], old.tail, old.boot))
	}
}

func (f *Fork) replayIsLong() bool {
	return f.replayBytes >= treesAfterBytes || f.replayLayers >= treesAfterLayers
}

// writeTreesLater writes the trees of a closed layer in the background. If the fork is closed before, the next
// opening does it.
func (f *Fork) writeTreesLater(m *moment) {
	f.replayBytes, f.replayLayers = 0, 0
	f.background.Go(func() {
		defer m.v.Close()
		f.syncMu.Lock()
		defer f.syncMu.Unlock()
		f.writeTrees(m) // without it the next start takes longer, no more
	})
}

// wasted is how much of the live journal a compaction would give back, about. f.mu is held.
func (f *Fork) wastedLocked() int64 {
	return f.log.tail - f.log.start - f.w.s.inline
}

// compact writes the live layer's trees and punches what is dead before them out of its journal. f.syncMu is held.
func (f *Fork) compact() error {
	f.mu.Lock()
	if f.closed || f.txn || f.log.tail == 0 || f.log.j == nil {
		f.mu.Unlock()
		return nil
	}
	if err := f.w.writable(); err != nil {
		f.mu.Unlock()
		return err
	}
	m := f.momentLocked(f.table, f.log.tail, f.log.boot)
	sp := f.space
	f.mu.Unlock()
	defer m.v.Close()
	err := f.writeTrees(m)
	if errors.Is(err, unix.ENOSPC) && f.giveBackReserve(m.l) {
		err = f.writeTrees(m)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	if f.log.l != m.l {
		f.mu.Unlock()
		return nil // closed meanwhile: what is closed stays as it is
	}
	f.log.start = m.head.offset
	pinned := sp.pins > 0
	parity := sp.reads.gen.Add(1) - 1
	j, err := f.log.l.acquire(fileJournal)
	f.mu.Unlock()
	if err != nil {
		return err
	}
	defer j.done()
	if pinned {
		return nil // a view may show what is dead now
	}
	// Reads that began before may still use what died before the moment.
	for wait := 20 * time.Microsecond; sp.reads.active[parity&1].Load() > 0; wait *= 2 {
		if wait > time.Second {
			return nil // one hangs in a slow source; the next compaction tries again
		}
		time.Sleep(wait)
	}
	at := int64(pageSize) // the header's page stays
	for _, s := range append(m.inlineSpans(), span{m.head.offset, m.head.offset}) {
		lo, hi := (at+pageSize-1)&^(pageSize-1), s.off&^(pageSize-1)
		if hi > lo {
			if err := j.f.PunchHole(lo, hi-lo); err != nil {
				return nil // the file system can't: nothing is lost
			}
		}
		at = max(at, s.end)
	}
	return nil
}

// giveBackReserve frees what is allocated ahead of the journal's end: a trees file that needs it frees more.
func (f *Fork) giveBackReserve(l *layer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := &f.log
	if g.l != l || g.j == nil || g.size == g.tail || g.j.f.Truncate(g.tail) != nil {
		return false
	}
	g.size = g.tail
	return true
}

// inlineSpans are the parts of the moment's journal that show in files.
func (m *moment) inlineSpans() []span {
	var list []span
	index := uint32(len(m.v.table) - 1)
	m.v.s.nodes.Scan(func(_ uint64, n *node) bool {
		n.ext.scan(0, func(e *extent) bool {
			if e.kind == extInline && e.layer == index {
				list = append(list, span{e.loc, e.loc + e.len})
			}
			return true
		})
		return true
	})
	sort.Slice(list, func(i, j int) bool { return list[i].off < list[j].off })
	return mergeSpans(list)
}
