package overlay

import (
	"slices"
	"sort"
	"sync/atomic"
)

// span is a run of bytes of a layer's data file.
type span struct{ off, end int64 }

// space hands out room in the live layer's data file. Guarded by the fork's lock, except reads.
//
// A run that shows nowhere any more goes limbo -> marked -> waiting -> free:
//
//	limbo    dead, but a power cut may bring the record back that shows it
//	marked   a sync mark behind its death has been written, its fdatasync is not done
//	waiting  its death is durable; a read that began before its death may still use it
//	free     may be written again
//
// A closed layer's runs are never reused: the space ends with the layer.
type space struct {
	tail    int64
	free    []span // by off; no two touch
	limbo   []span
	marked  []span
	waiting []span
	limboN  int64 // bytes in limbo
	pins    int   // views that may show dead runs: nothing becomes free

	waitGen uint32 // parity that waiting has to see empty
	reads   grace
}

// grace counts reads of stored bytes in progress, by parity of the generation in which they began.
type grace struct {
	gen    atomic.Uint32
	active [2]atomic.Int64
}

// enter is called with the fork's lock held (shared is enough), exit without.
func (g *grace) enter() uint32 {
	p := g.gen.Load() & 1
	g.active[p].Add(1)
	return p
}

func (g *grace) exit(p uint32) { g.active[p].Add(-1) }

// alloc finds n bytes. follow is where the file's previous run ends, or -1: going on there keeps a file that is
// written in order in one run.
func (s *space) alloc(n, follow int64) int64 {
	if follow == s.tail && follow >= 0 {
		s.tail += n
		return follow
	}
	s.promote()
	// First fit among the first free runs; a long search would cost more than the space.
	for i := range s.free[:min(len(s.free), 64)] {
		f := &s.free[i]
		if f.end-f.off < n {
			continue
		}
		at := f.off
		if f.off += n; f.off == f.end {
			s.free = slices.Delete(s.free, i, i+1)
		}
		return at
	}
	at := (s.tail + pageSize - 1) &^ (pageSize - 1)
	s.tail = at + n
	return at
}

// unused gives back an allocation that no record names.
func (s *space) unused(off, n int64) {
	if off+n == s.tail {
		s.tail = off
		return
	}
	s.free = addSpan(s.free, span{off, off + n})
}

// kill notes a run that shows nowhere any more.
func (s *space) kill(off, n int64) {
	if k := len(s.limbo); k > 0 && s.limbo[k-1].end == off {
		s.limbo[k-1].end = off + n
	} else {
		s.limbo = append(s.limbo, span{off, off + n})
	}
	s.limboN += n
}

// mark is called when a sync mark has been appended, settle when its fdatasync has succeeded.
func (s *space) mark() {
	s.marked = append(s.marked, s.limbo...)
	s.limbo, s.limboN = nil, 0
}

func (s *space) settle() {
	s.promote()
	if len(s.marked) == 0 || len(s.waiting) > 0 {
		return // a later settle takes it
	}
	s.waiting, s.marked = s.marked, nil
	s.waitGen = s.reads.gen.Add(1) - 1
	s.promote()
}

// promote frees what no read can still use.
func (s *space) promote() {
	if len(s.waiting) == 0 || s.pins > 0 || s.reads.active[s.waitGen&1].Load() > 0 {
		return
	}
	sort.Slice(s.waiting, func(i, j int) bool { return s.waiting[i].off < s.waiting[j].off })
	for _, w := range s.waiting {
		s.free = addSpan(s.free, w)
	}
	s.waiting = nil
}

// take removes a free run of at least n bytes, for punching.
func (s *space) takeLarge(n int64) (span, bool) {
	for i, f := range s.free {
		if f.end-f.off >= n {
			s.free = slices.Delete(s.free, i, i+1)
			return f, true
		}
	}
	return span{}, false
}

// addSpan adds a run to an ordered list and joins neighbours.
func addSpan(list []span, a span) []span {
	i := sort.Search(len(list), func(i int) bool { return list[i].off >= a.off })
	if i > 0 && list[i-1].end == a.off {
		list[i-1].end = a.end
		if i < len(list) && list[i].off == a.end {
			list[i-1].end = list[i].end
			list = slices.Delete(list, i, i+1)
		}
		return list
	}
	if i < len(list) && list[i].off == a.end {
		list[i].off = a.off
		return list
	}
	return slices.Insert(list, i, a)
}

// mergeSpans orders runs and joins those that overlap or touch.
func mergeSpans(list []span) []span {
	sort.Slice(list, func(i, j int) bool { return list[i].off < list[j].off })
	out := list[:0]
	for _, a := range list {
		if n := len(out); n > 0 && out[n-1].end >= a.off {
			out[n-1].end = max(out[n-1].end, a.end)
		} else {
			out = append(out, a)
		}
	}
	return out
}
