package image

import (
	"runtime/debug"
)

// readBatch is how many entries are decoded before they are yielded. Yielding happens outside the guard, so that a
// caller's panic is its own.
const readBatch = 64

// ReadDir implements Tree. In a delta, entries whose name the base's directory has keep the base's position, the
// others follow: 1 + the base directory's length + their index among the delta's records.
func (m *Image) ReadDir(dir, after uint64, yield func(Dirent) bool) error {
	batch := make([]Dirent, 0, readBatch)
	for {
		var err error
		var more bool
		batch, more, err = m.readBatch(dir, after, batch[:0])
		if err != nil {
			return err
		}
		for _, d := range batch {
			after = d.Pos
			if !yield(d) {
				return nil
			}
		}
		if !more {
			return nil
		}
	}
}

// readBatch decodes up to cap(batch) entries and says whether there may be more.
func (m *Image) readBatch(dir, after uint64, batch []Dirent) (_ []Dirent, more bool, err error) {
	v, err := m.view()
	if err != nil {
		return nil, false, err
	}
	defer v.guard(debug.SetPanicOnFault(true), &err)
	l, ok := v.list(dir)
	if !ok {
		return nil, false, ErrNotExist
	}
	batch = v.readBase(&l, after, batch)
	if len(batch) < cap(batch) {
		batch = v.readDelta(&l, after, batch)
	}
	return batch, len(batch) == cap(batch), nil
}

// readBase appends the entries that stand at the base's positions.
func (v *view) readBase(l *listing, after uint64, batch []Dirent) []Dirent {
	n := uint64(l.base.count)
	if after >= n {
		return batch
	}
	_, first, _ := v.base.entry(l.base.first + after)
	j, jn := uint64(0), uint64(l.delta.count)
	if jn > 0 {
		j, _ = v.delta.search(&l.delta, first)
	}
	var before []byte
	if after > 0 {
		_, before, _ = v.base.entry(l.base.first + after - 1)
	}
	for i := after; i < n && len(batch) < cap(batch); i++ {
		at := l.base.first + i
		ino, name, typ := v.base.entry(at)
		v.base.validName(l.ino, name, before)
		before = name
		f := v.base
		for j < jn {
			dino, dname, dtyp := v.delta.entry(l.delta.first + j)
			c := compareNames(dname, name)
			if c > 0 {
				break
			}
			if c == 0 {
				f, at, ino, typ = v.delta, l.delta.first+j, dino, dtyp
			}
			j++
		}
		if typ == typeWhiteout && f == v.delta {
			continue
		}
		v.checkDirectory(f, at, l.ino, ino, typ)
		batch = append(batch, Dirent{Name: string(name), Ino: ino, Pos: i + 1, Type: typ})
	}
	return batch
}

// readDelta appends the entries that only the delta has.
func (v *view) readDelta(l *listing, after uint64, batch []Dirent) []Dirent {
	n := uint64(l.base.count)
	j := uint64(0)
	if after > n {
		j = after - n
	}
	for ; j < uint64(l.delta.count) && len(batch) < cap(batch); j++ {
		at := l.delta.first + j
		ino, name, typ := v.delta.entry(at)
		var before []byte
		if j > 0 {
			_, before, _ = v.delta.entry(at - 1)
		}
		v.delta.validName(l.ino, name, before)
		if typ == typeWhiteout {
			continue
		}
		if _, ok := v.base.search(&l.base, name); ok {
			continue
		}
		v.checkDirectory(v.delta, at, l.ino, ino, typ)
		batch = append(batch, Dirent{Name: string(name), Ino: ino, Pos: n + j + 1, Type: typ})
	}
	return batch
}
