package image

import (
	"fmt"
	"hash/crc32"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"tine/snapshot/content"
	"tine/snapshot/durable"
)

// file is one mapped image. The mapping is given back when nothing refers to the file any more; every method that
// touches it is called under a guard, which also keeps it alive.
type file struct {
	path string
	h    *header
	data []byte // mapped; a page that can't be read faults
	crc  []byte // in data, checked by Open

	// verified has a bit for each page whose checksum was found right.
	verified []atomic.Uint64

	sections [numSections]section
	// decodedXattrs has the sets that were read before.
	decodedXattrs []atomic.Pointer[[]Xattr]

	// The outermost numbers of nodes and of directories: each search begins with them.
	firstIno, lastIno uint64
	firstDir, lastDir uint64
}

type section struct {
	off  uint64 // in the file
	data []byte
	rec  uint64 // size of a record
	n    uint64 // records
}

// damage is what methods of file panic with; guards turn it into a *CorruptError.
type damage string

func (f *file) damaged(format string, args ...any) { panic(damage(fmt.Sprintf(format, args...))) }

// openFile maps an image and checks its header and its list of checksums.
func openFile(fsys durable.FS, path string) (f *file, err error) {
	fd, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("tree image: %w", err)
	}
	defer fd.Close()
	st, err := fd.Stat()
	if err != nil {
		return nil, fmt.Errorf("tree image: %w", err)
	}
	if !st.Mode().IsRegular() || st.Size() < pageSize || st.Size() > maxFile {
		return nil, &CorruptError{path, fmt.Sprintf("it has %d bytes", st.Size())}
	}
	data, err := unix.Mmap(int(fd.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("tree image %s: mmap: %w", path, err)
	}
	f = &file{path: path, data: data}
	runtime.AddCleanup(f, func(data []byte) { _ = unix.Munmap(data) }, data)
	if err := f.init(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *file) init() (err error) {
	defer f.guard(debug.SetPanicOnFault(true), &err)
	h, err := decodeHeader(f.data, uint64(len(f.data)))
	if err != nil {
		if v, ok := err.(*VersionError); ok {
			return fmt.Errorf("%s: %w", f.path, v)
		}
		return &CorruptError{f.path, err.Error()}
	}
	f.h = h
	for i, s := range h.sections {
		f.sections[i] = section{s.off, f.data[s.off : s.off+s.len : s.off+s.len], recordSize[i], s.len / recordSize[i]}
	}
	f.crc = f.sections[secCRC].data
	if crc32.Checksum(f.crc, castagnoli) != h.crcOfCRC {
		return &CorruptError{f.path, "the checksum of the page checksums differs"}
	}
	f.verified = make([]atomic.Uint64, (len(f.crc)/4+63)/64)
	f.decodedXattrs = make([]atomic.Pointer[[]Xattr], f.sections[secXattrSets].n)
	if n := f.sections[secNodes].n; n > 0 {
		f.firstIno, f.lastIno = le.Uint64(f.rec(secNodes, 0)), le.Uint64(f.rec(secNodes, n-1))
	}
	if n := f.sections[secDirs].n; n > 0 {
		f.firstDir, f.lastDir = le.Uint64(f.rec(secDirs, 0)), le.Uint64(f.rec(secDirs, n-1))
	}
	return nil
}

// guard ends a method that touched the mapping: deferred with the result of SetPanicOnFault(true), it restores that
// and turns damage and page faults into errors. Any other panic goes on.
func (f *file) guard(old bool, err *error) {
	debug.SetPanicOnFault(old)
	if r := recover(); r != nil {
		*err = f.recovered(r)
	}
}

func (f *file) recovered(r any) error {
	switch r := r.(type) {
	case damage:
		return &CorruptError{f.path, string(r)}
	case interface{ Addr() uintptr }: // runtime's memory fault
		if f.maps(r.Addr()) {
			return &CorruptError{f.path, fmt.Sprintf("reading page %d failed", (r.Addr()-f.start())/pageSize)}
		}
	}
	panic(r)
}

func (f *file) start() uintptr { return addressOf(f.data) }

func (f *file) maps(addr uintptr) bool {
	return addr >= f.start() && addr-f.start() < uintptr(len(f.data))
}

// touch checks the pages that hold [off, off+n) of the file unless that was done before.
func (f *file) touch(off, n uint64) {
	p := off/pageSize - 1
	last := (off+n-1)/pageSize - 1
	for ; p <= last; p++ {
		if f.verified[p/64].Load()&(1<<(p%64)) == 0 {
			f.verifyPage(p)
		}
	}
}

func (f *file) verifyPage(p uint64) {
	page := f.data[(p+1)*pageSize : (p+2)*pageSize]
	if crc32.Checksum(page, castagnoli) != le.Uint32(f.crc[4*p:]) {
		f.damaged("the checksum of page %d differs", p+1)
	}
	f.verified[p/64].Or(1 << (p % 64))
}

// rec is the i-th record of a section.
func (f *file) rec(sec int, i uint64) []byte {
	s := &f.sections[sec]
	if i >= s.n {
		f.damaged("record %d of section %q is behind its end", i, sectionNames[sec])
	}
	at := i * s.rec
	f.touch(s.off+at, s.rec)
	return s.data[at : at+s.rec : at+s.rec]
}

// span is part of a section of plain bytes.
func (f *file) span(sec int, off, n uint64) []byte {
	s := &f.sections[sec]
	if off > uint64(len(s.data)) || n > uint64(len(s.data))-off {
		f.damaged("bytes %d..%d of section %q are behind its end", off, off+n, sectionNames[sec])
	}
	if n == 0 {
		return nil
	}
	f.touch(s.off+off, n)
	return s.data[off : off+n : off+n]
}

func (f *file) contentRec(i uint32) []byte { return f.rec(secContents, uint64(i)) }
func (f *file) gitlinkRec(i uint32) []byte { return f.rec(secGitlinks, uint64(i)) }

func (f *file) xattrSet(i uint32) (uint32, []byte) {
	rec := f.rec(secXattrSets, uint64(i))
	// Sets follow each other, so that all of them together are no longer than the data.
	off := uint64(0)
	if i > 0 {
		before := f.rec(secXattrSets, uint64(i-1))
		off = le.Uint64(before) + uint64(le.Uint32(before[8:]))
	}
	if le.Uint64(rec) != off {
		f.damaged("xattr set %d is malformed", i)
	}
	return le.Uint32(rec[12:]), f.span(secXattrData, le.Uint64(rec), uint64(le.Uint32(rec[8:])))
}

// nodeIndex finds a node's record.
func (f *file) nodeIndex(ino uint64) (uint64, bool) {
	return searchNumbers(f.sections[secNodes].n, f.firstIno, f.lastIno, ino,
		func(i uint64) uint64 { return le.Uint64(f.rec(secNodes, i)) })
}

// nodeRec returns a node's record as it lies there.
func (f *file) nodeRec(ino uint64) ([]byte, bool) {
	// Without gaps below it, which is the rule, the record is where its number says.
	if i := ino - f.firstIno; i < f.sections[secNodes].n {
		if rec := f.rec(secNodes, i); le.Uint64(rec) == ino {
			return rec, true
		}
	}
	i, ok := f.nodeIndex(ino)
	if !ok {
		return nil, false
	}
	return f.rec(secNodes, i), true
}

// node decodes a record into the node that callers see.
func (f *file) node(rec []byte) (n Node) {
	decodeNode(rec, &n)
	if c := le.Uint32(rec[36:]); c != 0 && !n.IsDir() {
		c := f.contentRec(c - 1)
		copy(n.Content.Digest[:], c)
		n.Content.Algo = content.Algo(c[32])
		if le.Uint64(c[40:]) != uint64(n.Size) {
			f.damaged("node %d has %d bytes, its content %d", n.Ino, n.Size, le.Uint64(c[40:]))
		}
	}
	if g := le.Uint32(rec[84:]); g != 0 {
		g := f.gitlinkRec(g - 1)
		n.Gitlink = append([]byte(nil), g[8:8+min(g[0], 32)]...)
	}
	if x := le.Uint32(rec[88:]); x != 0 {
		n.Xattrs = f.xattrs(x - 1)
	}
	if n.Nlink == 0 || n.Size < 0 || n.Mtime.Nsec >= 1e9 || n.Ctime.Nsec >= 1e9 || n.Btime.Nsec >= 1e9 ||
		hasContent(typeOf(n.Mode)) == n.Content.IsZero() {
		f.damaged("node %d is malformed", n.Ino)
	}
	return n
}

// xattrs decodes a set once; nodes share it.
func (f *file) xattrs(i uint32) []Xattr {
	if uint64(i) < uint64(len(f.decodedXattrs)) {
		if set := f.decodedXattrs[i].Load(); set != nil {
			return *set
		}
	}
	n, data := f.xattrSet(i)
	if uint64(n)*7 > uint64(len(data)) { // 7 bytes is the shortest: a name of one byte and no value
		f.damaged("xattr set %d says that it has %d attributes", i, n)
	}
	set := make([]Xattr, 0, n)
	for range n {
		name, rest, ok := cutField(data, 2)
		if !ok {
			f.damaged("xattr set %d is malformed", i)
		}
		value, rest, ok := cutField(rest, 4)
		if !ok {
			f.damaged("xattr set %d is malformed", i)
		}
		set = append(set, Xattr{string(name), append([]byte{}, value...)})
		data = rest
	}
	if err := checkXattrs(set); err != nil || len(data) != 0 || n == 0 {
		f.damaged("xattr set %d is malformed", i)
	}
	f.decodedXattrs[i].Store(&set)
	return set
}

// cutField takes a field off b that begins with its length in width bytes.
func cutField(b []byte, width int) (field, rest []byte, ok bool) {
	if len(b) < width {
		return nil, nil, false
	}
	n := int(le.Uint16(b))
	if width == 4 {
		n = int(le.Uint32(b))
	}
	if b = b[width:]; n > len(b) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// entry is the i-th entry's record: its node, name (in the mapping) and type.
func (f *file) entry(i uint64) (ino uint64, name []byte, typ uint8) {
	rec := f.rec(secEntries, i)
	off, n, typ := unpackName(le.Uint64(rec[8:]))
	return le.Uint64(rec), f.span(secHeap, off, n), typ
}

// search finds the place of name among a directory's entries: the index, from d.first, of the first that isn't less.
func (f *file) search(d *dirRec, name []byte) (i uint64, found bool) {
	lo, hi := uint64(0), uint64(d.count)
	for lo < hi {
		mid := (lo + hi) / 2
		_, at, _ := f.entry(d.first + mid)
		switch c := compareNames(at, name); {
		case c == 0:
			return mid, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}

// dirByNode finds the entries of a directory through its node record; a base has one for each directory.
func (f *file) dirByNode(ino uint64) (d dirRec, ok bool) {
	rec, ok := f.nodeRec(ino)
	if !ok || typeOf(le.Uint32(rec[16:])) != typeDir {
		return d, false
	}
	i := le.Uint32(rec[36:])
	if i == 0 {
		f.damaged("directory %d has no list of entries", ino)
	}
	return f.dir(uint64(i-1), ino), true
}

// dirBySearch finds the entries of a directory by number; a delta may have them without having the node.
func (f *file) dirBySearch(ino uint64) (d dirRec, ok bool) {
	i, ok := searchNumbers(f.sections[secDirs].n, f.firstDir, f.lastDir, ino,
		func(i uint64) uint64 { return le.Uint64(f.rec(secDirs, i)) })
	if !ok {
		return d, false
	}
	return f.dir(i, ino), true
}

func (f *file) dir(i, ino uint64) dirRec {
	d := decodeDirRec(f.rec(secDirs, i))
	n := f.sections[secEntries].n
	// Lists follow each other, so that all of them together are no longer than the section.
	first := uint64(0)
	if i > 0 {
		before := decodeDirRec(f.rec(secDirs, i-1))
		first = before.first + uint64(before.count)
	}
	if d.ino != ino || d.first != first || d.first > n || uint64(d.count) > n-d.first {
		f.damaged("the list of entries of directory %d is malformed", ino)
	}
	return d
}
