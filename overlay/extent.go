package overlay

import (
	"slices"
	"sort"

	"github.com/tidwall/btree"
)

type extKind uint8

const (
	extHole     extKind = iota + 1 // zeroes over the base's content; takes no space
	extReserved                    // zeroes by fallocate; takes space
	extInline                      // in a layer's journal
	extBlock                       // in a layer's data file
	extRef                         // a part of a stored content; layer is an index into state.refs
)

// extent is a run of a file's bytes that don't come from its base content.
type extent struct {
	off, len int64
	loc      int64 // where it starts in the journal, data file or content
	layer    uint32
	kind     extKind
	shared   bool // other extents may show the same place (Clone): it is never reused
}

func (e *extent) end() int64 { return e.off + e.len }

// hasBytes: it takes space and isn't known to be zero.
func (e *extent) hasBytes() bool { return e.kind >= extInline }

// part is the sub-run [off, end) of e.
func (e extent) part(off, end int64) extent {
	if e.hasBytes() {
		e.loc += off - e.off
	}
	e.off, e.len = off, end-off
	return e
}

// joins reports that f continues e in the file and on disk.
func (e *extent) joins(f *extent) bool {
	return e.end() == f.off && e.kind == f.kind && e.layer == f.layer && e.shared == f.shared &&
		(!e.hasBytes() || e.loc+e.len == f.loc)
}

// listMax extents are kept in a slice; more in a B-tree, where a change doesn't move the rest.
const listMax = 96

// extents is the ordered set of a file's extents; they don't overlap.
type extents struct {
	epoch uint64
	list  []extent
	tree  *btree.Map[int64, extent] // by off; list is empty when it is not nil
	data  int64                     // bytes in extents other than holes
	over  int64                     // bytes of the base content that extents hide
}

// own gives extents that the state with this epoch may change.
func (x *extents) own(epoch uint64) *extents {
	if x == nil {
		return &extents{epoch: epoch}
	}
	if x.epoch == epoch {
		return x
	}
	c := &extents{epoch: epoch, data: x.data, over: x.over}
	if x.tree != nil {
		// Copying marks the source, so two states must not copy at once; all callers hold the fork's lock, and states
		// shared between forks are copied with copyMu held.
		copyMu.Lock()
		c.tree = x.tree.Copy()
		copyMu.Unlock()
	} else {
		c.list = slices.Clone(x.list)
	}
	return c
}

func (x *extents) count() int {
	if x == nil {
		return 0
	}
	if x.tree != nil {
		return x.tree.Len()
	}
	return len(x.list)
}

// scan calls fn for the extents that end behind off, in order, until it returns false.
func (x *extents) scan(off int64, fn func(*extent) bool) {
	if x == nil {
		return
	}
	if x.tree != nil {
		from := off
		x.tree.Descend(off, func(k int64, e extent) bool {
			if e.end() > off {
				from = k
			}
			return false
		})
		x.tree.Ascend(from, func(_ int64, e extent) bool { return fn(&e) })
		return
	}
	i := sort.Search(len(x.list), func(i int) bool { return x.list[i].end() > off })
	for ; i < len(x.list); i++ {
		if !fn(&x.list[i]) {
			return
		}
	}
}

// in returns the extents that have a part in [off, end), in order: of a short list the list's own, which the caller
// must not change, of a long one copies.
func (x *extents) in(off, end int64) []extent {
	if x == nil {
		return nil
	}
	if x.tree != nil {
		return x.inTree(off, end)
	}
	i := sort.Search(len(x.list), func(i int) bool { return x.list[i].end() > off })
	j := i
	for j < len(x.list) && x.list[j].off < end {
		j++
	}
	return x.list[i:j]
}

// inTree is apart so that its closure doesn't make the callers' variables escape.
func (x *extents) inTree(off, end int64) []extent {
	var list []extent
	x.scan(off, func(e *extent) bool {
		if e.off >= end {
			return false
		}
		list = append(list, *e)
		return true
	})
	return list
}

// replace makes [off, end) empty, then adds e (unless its len is 0). dead is told what extents with bytes lost.
// baseLen is the length of the base content that shows below.
func (x *extents) replace(off, end int64, e extent, baseLen int64, dead func(extent)) {
	var hit [4]extent
	old := hit[:0]
	x.scan(off, func(o *extent) bool {
		if o.off >= end {
			return false
		}
		old = append(old, *o)
		return true
	})
	var add [3]extent
	pieces := add[:0]
	for i := range old {
		o := &old[i]
		lo, hi := max(o.off, off), min(o.end(), end)
		x.account(o.part(lo, hi), baseLen, -1)
		if o.hasBytes() && dead != nil {
			dead(o.part(lo, hi))
		}
		if o.off < off {
			pieces = append(pieces, o.part(o.off, off))
		}
	}
	if e.len > 0 {
		x.account(e, baseLen, 1)
		if n := len(pieces); n > 0 && pieces[n-1].joins(&e) {
			pieces[n-1].len += e.len
		} else {
			pieces = append(pieces, e)
		}
	}
	if n := len(old); n > 0 && old[n-1].end() > end {
		tail := old[n-1].part(end, old[n-1].end())
		if m := len(pieces); m > 0 && pieces[m-1].joins(&tail) {
			pieces[m-1].len += tail.len
		} else {
			pieces = append(pieces, tail)
		}
	}
	x.splice(old, pieces)
}

func (x *extents) account(e extent, baseLen, sign int64) {
	if e.kind != extHole {
		x.data += sign * e.len
	}
	if n := min(e.end(), baseLen) - e.off; n > 0 {
		x.over += sign * n
	}
}

// splice puts pieces where old was, joining the first with the extent before it.
func (x *extents) splice(old, pieces []extent) {
	if x.tree != nil {
		for i := range old {
			x.tree.Delete(old[i].off)
		}
		if len(pieces) > 0 {
			x.tree.Descend(pieces[0].off, func(_ int64, p extent) bool {
				if p.joins(&pieces[0]) {
					pieces[0].off, pieces[0].loc, pieces[0].len = p.off, p.loc, p.len+pieces[0].len
				}
				return false
			})
		}
		for _, p := range pieces {
			x.tree.Set(p.off, p)
		}
		return
	}
	var i int
	switch {
	case len(old) > 0:
		i = sort.Search(len(x.list), func(i int) bool { return x.list[i].off >= old[0].off })
	case len(pieces) > 0:
		i = sort.Search(len(x.list), func(i int) bool { return x.list[i].off >= pieces[0].off })
	default:
		return
	}
	j := i + len(old)
	if i > 0 && len(pieces) > 0 && x.list[i-1].joins(&pieces[0]) {
		p := x.list[i-1]
		pieces[0].off, pieces[0].loc, pieces[0].len = p.off, p.loc, p.len+pieces[0].len
		i--
	}
	x.list = slices.Replace(x.list, i, j, pieces...)
	if len(x.list) > listMax {
		x.tree = new(btree.Map[int64, extent])
		for _, e := range x.list {
			x.tree.Set(e.off, e)
		}
		x.list = nil
	}
}

// share marks the runs with bytes in [off, end) as shown by others too. Runs that reach beyond are marked whole.
func (x *extents) share(off, end int64) {
	var hit []extent
	x.scan(off, func(o *extent) bool {
		if o.off >= end {
			return false
		}
		if o.hasBytes() && !o.shared {
			hit = append(hit, *o)
		}
		return true
	})
	for _, o := range hit {
		o.shared = true
		if x.tree != nil {
			x.tree.Set(o.off, o)
			continue
		}
		i := sort.Search(len(x.list), func(i int) bool { return x.list[i].off >= o.off })
		x.list[i] = o
	}
}
