package image

import (
	"fmt"
	"runtime/debug"
)

// Verify reads all of an image, and of its base, and recomputes everything that an image claims: checksums, counts,
// links, parents, cached hashes and both roots, so that an image from anywhere that passes is as good as one that
// was built here. It returns a *CorruptError for the first thing wrong.
func (m *Image) Verify() error {
	v, err := m.view()
	if err != nil {
		return err
	}
	for _, f := range []*file{v.base, v.delta} {
		if f == nil {
			continue
		}
		if err := f.verifyPages(); err != nil {
			return err
		}
	}
	// The base by itself, so that its cached hashes and indices are right, then what it is with the delta.
	base := &Image{}
	base.v.Store(&view{base: v.base})
	e, err := base.rebuild()
	if err != nil {
		return err
	}
	if err := v.base.compare(e); err != nil {
		return err
	}
	if v.delta == nil {
		return nil
	}
	if e, err = m.rebuild(); err != nil {
		return err
	}
	if got, want := e.header, v.delta.h; got.id != want.id || got.inodes != want.inodes || got.bytes != want.bytes ||
		got.entries != want.entries || got.nextIno > want.nextIno {
		return v.delta.corrupt("the tree is not the one that the header names")
	}
	return m.compareDelta()
}

func (f *file) corrupt(format string, args ...any) error {
	return &CorruptError{f.path, fmt.Sprintf(format, args...)}
}

// verifyPages reads and checks every page, also those that were checked before.
func (f *file) verifyPages() (err error) {
	defer f.guard(debug.SetPanicOnFault(true), &err)
	for p := range uint64(len(f.crc) / 4) {
		f.verifyPage(p)
	}
	return nil
}

// rebuild makes the image's tree anew from what the image says of it.
func (m *Image) rebuild() (*Encoded, error) {
	v, err := m.view()
	if err != nil {
		return nil, err
	}
	b, err := m.Builder()
	if err != nil {
		return nil, err
	}
	e, err := b.Encode()
	if err != nil {
		return nil, v.top().corrupt("%v", err)
	}
	return e, nil
}

// compare holds a base image against its tree built anew: their bytes are equal but for names' places in the heap,
// and the order of the tables.
func (f *file) compare(e *Encoded) (err error) {
	defer f.guard(debug.SetPanicOnFault(true), &err)
	got, want := f.h, e.header
	if got.id != want.id || got.inodes != want.inodes || got.bytes != want.bytes || got.entries != want.entries || got.nextIno < want.nextIno {
		return f.corrupt("the tree is not the one that the header names")
	}
	for _, sec := range []int{secDirs, secByHash, secNodeTrie, secEntryTrie} {
		if string(f.sections[sec].data) != string(e.sections[sec]) {
			return f.corrupt("section %q is not what the tree gives", sectionNames[sec])
		}
	}
	for i := range f.sections[secNodes].n {
		rec, again := f.rec(secNodes, i), e.sections[secNodes][i*nodeSize:][:nodeSize]
		// number, parent, mode, nlink; a directory's name and list
		same := string(rec[:24]) == string(again[:24])
		if typeOf(le.Uint32(rec[16:])) == typeDir {
			same = same && string(rec[32:40]) == string(again[32:40])
		}
		if !same || le.Uint32(rec[92:]) != 0 {
			return f.corrupt("node %d has other links than the tree gives", le.Uint64(rec))
		}
	}
	return nil
}

// compareDelta checks what a delta says of links and counts beside what its tree is.
func (m *Image) compareDelta() error {
	v, err := m.view()
	if err != nil {
		return err
	}
	d, err := NewDelta(m)
	if err != nil {
		return err
	}
	e, err := d.Encode()
	if err != nil {
		return v.delta.corrupt("%v", err)
	}
	return v.delta.compareChanges(e)
}

func (f *file) compareChanges(e *Encoded) (err error) {
	defer f.guard(debug.SetPanicOnFault(true), &err)
	if string(f.sections[secDirs].data) != string(e.sections[secDirs]) {
		return f.corrupt("section %q is not what the tree gives", sectionNames[secDirs])
	}
	if len(f.sections[secNodes].data) != len(e.sections[secNodes]) {
		return f.corrupt("section %q is not what the tree gives", sectionNames[secNodes])
	}
	for i := range f.sections[secNodes].n {
		rec, again := f.rec(secNodes, i), e.sections[secNodes][i*nodeSize:][:nodeSize]
		same := string(rec[:24]) == string(again[:24]) && string(rec[92:]) == string(again[92:])
		if typeOf(le.Uint32(rec[16:])) == typeDir {
			same = same && string(rec[32:40]) == string(again[32:40])
		}
		if !same {
			return f.corrupt("node %d has other links than the tree gives", le.Uint64(rec))
		}
	}
	return nil
}
