package overlay

import (
	"io"

	"golang.org/x/sys/unix"

	"tine/snapshot/content"
	"tine/snapshot/image"
)

// Lookup finds a name. ENOENT if there is none.
func (f *Fork) Lookup(dir uint64, name string) (Attr, error) {
	if len(name) > 255 {
		return Attr{}, unix.ENAMETOOLONG
	}
	f.mu.RLock()
	s := f.w.s
	d, err := s.entry(dir, name)
	if err != nil || d == nil {
		f.mu.RUnlock()
		if err == nil {
			err = unix.ENOENT
		}
		return Attr{}, err
	}
	n, ok, err := s.changed(d.ino)
	if ok && err == nil {
		a := f.attrOf(n)
		f.mu.RUnlock()
		return a, nil
	}
	f.mu.RUnlock()
	if err != nil {
		return Attr{}, err
	}
	return f.baseAttr(d.ino)
}

// Getattr returns an inode's attributes, also of one without a name. ENOENT if it doesn't exist.
func (f *Fork) Getattr(ino uint64) (Attr, error) {
	f.mu.RLock()
	n, ok, err := f.w.s.changed(ino)
	if ok && err == nil {
		a := f.attrOf(n)
		f.mu.RUnlock()
		return a, nil
	}
	f.mu.RUnlock()
	if err != nil {
		return Attr{}, err
	}
	return f.baseAttr(ino)
}

func (f *Fork) baseAttr(ino uint64) (Attr, error) {
	b, err := f.cfg.Base.Node(ino)
	if err != nil {
		return Attr{}, baseErr("reading", ino, err)
	}
	return f.attrOfBase(&b), nil
}

// Parent is a directory's parent; the root's is the root.
func (f *Fork) Parent(dir uint64) (uint64, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n, err := f.w.s.node(dir)
	if err != nil {
		return 0, err
	}
	if !n.isDir() {
		return 0, unix.ENOTDIR
	}
	return n.parent, nil
}

// Readlink returns a symlink's target.
func (f *Fork) Readlink(ino uint64) (string, error) {
	f.mu.RLock()
	n, err := f.w.s.node(ino)
	f.mu.RUnlock()
	if err != nil {
		return "", err
	}
	return readTarget(n, f.cfg.Contents)
}

func readTarget(n *node, contents content.Opener) (string, error) {
	if !n.isSymlink() {
		return "", unix.EINVAL
	}
	if n.base == nil {
		return n.target, nil
	}
	b := make([]byte, n.size)
	if err := readContent(contents, n.base.content, b, 0); err != nil {
		return "", &IOError{Op: "reading the target of", Ino: n.ino, Err: err}
	}
	return string(b), nil
}

// piece is one run of a read: where its bytes come from.
type piece struct {
	n     int // bytes
	kind  extKind
	layer uint32
	loc   int64
}

// source is where pieces come from.
type source struct {
	contents content.Opener
	id       content.ID   // the base's content, for pieces of kind 0
	refs     []contentRef // for extRef
	table    []*layer
}

func (s *state) source(n *node, contents content.Opener, table []*layer) source {
	src := source{contents: contents, refs: s.refs, table: table}
	if n.base != nil {
		src.id = n.base.content
	}
	return src
}

// addPiece appends a run and joins it to the one before where they continue each other.
func addPiece(list []piece, q piece) []piece {
	if k := len(list); k > 0 {
		l := &list[k-1]
		if l.kind == q.kind && l.layer == q.layer && (q.kind == extHole || l.loc+int64(l.n) == q.loc) {
			l.n += q.n
			return list
		}
	}
	return append(list, q)
}

// pieces plans the reading of up to want bytes at off, under the lock; it is done without it. total is how many there
// are. list is memory to begin with.
func (n *node) pieces(list []piece, off int64, want int) (_ []piece, total int) {
	if off >= n.size || off < 0 {
		return list, 0
	}
	end := off + min(int64(want), n.size-off)
	at := off
	ext := n.ext.in(off, end)
	for i := range ext {
		x := &ext[i]
		lo, hi := max(x.off, off), min(x.end(), end)
		list = n.gap(list, at, lo)
		if x.hasBytes() {
			list = addPiece(list, piece{n: int(hi - lo), kind: x.kind, layer: x.layer, loc: x.loc + lo - x.off})
		} else {
			list = addPiece(list, piece{n: int(hi - lo), kind: extHole})
		}
		at = hi
	}
	return n.gap(list, at, end), int(end - off)
}

// gap plans [lo, hi), where n has no extents.
func (n *node) gap(list []piece, lo, hi int64) []piece {
	if m := min(hi, n.baseLen); lo < m {
		list = addPiece(list, piece{n: int(m - lo), loc: lo})
		lo = m
	}
	if lo < hi {
		list = addPiece(list, piece{n: int(hi - lo), kind: extHole})
	}
	return list
}

// read reads pieces into b.
func (src *source) read(list []piece, b []byte) error {
	for i := range list {
		q := list[i]
		part := b[:q.n]
		b = b[q.n:]
		var err error
		switch q.kind {
		case 0:
			err = readContent(src.contents, src.id, part, q.loc)
		case extHole:
			clear(part)
		case extInline:
			err = src.table[q.layer].readAt(fileJournal, part, q.loc)
		case extBlock:
			err = src.table[q.layer].readAt(fileData, part, q.loc)
		case extRef:
			err = readContent(src.contents, src.refs[q.layer].id, part, q.loc)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Read reads a file's bytes: fewer than len(buf) only at its end, 0 behind it.
func (f *Fork) Read(ino uint64, buf []byte, off int64) (int, error) {
	var memory [12]piece
	f.mu.RLock()
	if f.closed {
		f.mu.RUnlock()
		return 0, unix.EBADF
	}
	n, err := f.w.s.node(ino)
	if err == nil && !n.isReg() {
		err = unix.EINVAL
		if n.isDir() {
			err = unix.EISDIR
		}
	}
	if err != nil {
		f.mu.RUnlock()
		return 0, err
	}
	list, total := n.pieces(memory[:0], off, len(buf))
	src := f.w.s.source(n, f.cfg.Contents, f.table)
	sp := f.space
	g := sp.reads.enter()
	f.mu.RUnlock()
	err = src.read(list, buf)
	sp.reads.exit(g)
	if err != nil {
		return 0, &IOError{Op: "reading", Ino: ino, Err: err}
	}
	return total, nil
}

// fileReader reads a file of an immutable state.
type fileReader struct {
	s        *state
	n        *node
	table    []*layer
	contents content.Opener
	done     func()
}

func (r *fileReader) Size() int64 { return r.n.size }

func (r *fileReader) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, unix.EINVAL
	}
	list, total := r.n.pieces(nil, off, len(b))
	src := r.s.source(r.n, r.contents, r.table)
	if err := src.read(list, b); err != nil {
		return 0, &IOError{Op: "reading", Ino: r.n.ino, Err: err}
	}
	if total < len(b) {
		return total, io.EOF
	}
	return total, nil
}

func (r *fileReader) Close() error {
	if r.done != nil {
		r.done()
		r.done = nil
	}
	return nil
}

// stringReader reads a new symlink's target.
type stringReader string

func (r stringReader) Size() int64  { return int64(len(r)) }
func (r stringReader) Close() error { return nil }
func (r stringReader) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, unix.EINVAL
	}
	if off >= int64(len(r)) {
		return 0, io.EOF
	}
	n := copy(b, r[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

var _ image.Files = (*View)(nil)
