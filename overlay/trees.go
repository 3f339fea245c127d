package overlay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"

	"github.com/tidwall/btree"

	"tine/snapshot/content"
	"tine/snapshot/durable"
	"tine/snapshot/image"
)

// A trees file, LAYERS/<id>/trees, is a state at one record of the layer: loading it replaces the replay of all
// before. Format: FORMAT.md.

const (
	treesMagic   = "tineTREE"
	treesVersion = 1
	treesName    = "trees"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// treesHead says what a trees file stands for.
type treesHead struct {
	layer   LayerID
	base    string
	seq     uint64 // of the first record that isn't in it
	offset  int64  // of that record in the layer's journal
	boot    [16]byte
	layers  []LayerID // the fork's layers up to this one
	replies replies
}

// encoder appends the parts of a trees file.
type encoder struct{ b []byte }

func (e *encoder) u(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) bytes(v []byte) {
	e.u(uint64(len(v)))
	e.b = append(e.b, v...)
}
func (e *encoder) str(v string) {
	e.u(uint64(len(v)))
	e.b = append(e.b, v...)
}
func (e *encoder) time(sec int64, nsec uint32) {
	e.b = binary.AppendVarint(e.b, sec)
	e.u(uint64(nsec))
}
func (e *encoder) content(id content.ID, size int64) {
	e.b = append(e.b, byte(id.Algo))
	e.b = append(e.b, id.Digest[:]...)
	e.u(uint64(size))
}

// encodeTrees gives a trees file's bytes.
func encodeTrees(h *treesHead, s *state) []byte {
	e := &encoder{b: make([]byte, 0, 4096+s.nodes.Len()*128+s.names.Len()*48)}
	e.b = append(e.b, treesMagic...)
	e.b = binary.LittleEndian.AppendUint32(e.b, treesVersion)
	e.b = append(e.b, h.layer[:]...)
	e.b = append(e.b, h.boot[:]...)
	e.str(h.base)
	e.u(h.seq)
	e.u(uint64(h.offset))
	e.u(uint64(len(h.layers)))
	for _, l := range h.layers {
		e.b = append(e.b, l[:]...)
	}
	e.b = append(e.b, h.replies.conn[:]...)
	e.u(uint64(len(h.replies.order)))
	for i := range h.replies.order {
		unique := h.replies.order[(h.replies.next+i)%len(h.replies.order)]
		e.u(unique)
		e.u(h.replies.value[unique])
	}
	e.u(s.nextIno)
	e.u(uint64(len(s.refs)))
	for _, r := range s.refs {
		e.content(r.id, r.size)
	}
	e.u(uint64(s.nodes.Len()))
	s.nodes.Scan(func(_ uint64, n *node) bool { e.node(n); return true })
	e.u(uint64(s.names.Len()))
	s.names.Scan(func(d *dirent) bool {
		e.u(d.dir)
		e.str(d.name)
		e.u(d.ino)
		e.u(d.pos)
		e.b = append(e.b, d.typ, b2u(d.base))
		return true
	})
	return binary.LittleEndian.AppendUint32(e.b, crc32.Update(h.layer.Salt(), castagnoli, e.b))
}

func b2u(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// What follows a node's flags.
const (
	treeBase = 1 << iota
	treeTarget
	treeDir
	treeExtents
)

func (e *encoder) node(n *node) {
	var has byte
	if n.base != nil {
		has |= treeBase
	}
	if n.target != "" {
		has |= treeTarget
	}
	if n.dir != nil {
		has |= treeDir
	}
	if n.ext != nil {
		has |= treeExtents
	}
	e.u(n.ino)
	e.b = append(e.b, byte(n.flags), has)
	for _, v := range [...]uint64{n.parent, uint64(n.size), uint64(n.baseLen), uint64(n.mode), uint64(n.nlink), uint64(n.uid), uint64(n.gid), uint64(n.rdev)} {
		e.u(v)
	}
	e.time(n.mtimeS, n.mtimeN)
	e.time(n.ctimeS, n.ctimeN)
	e.time(n.btimeS, n.btimeN)
	e.time(n.atimeS, n.atimeN)
	e.u(uint64(len(n.xattrs)))
	for _, x := range n.xattrs {
		e.str(x.Name)
		e.bytes(x.Value)
	}
	if n.base != nil {
		e.content(n.base.content, n.base.size)
		e.bytes(n.base.gitlink)
	}
	if n.target != "" {
		e.str(n.target)
	}
	if n.dir != nil {
		e.u(uint64(n.dir.count))
		e.u(n.dir.nextPos)
	}
	if n.ext != nil {
		e.u(uint64(n.ext.count()))
		n.ext.scan(0, func(x *extent) bool {
			e.b = append(e.b, byte(x.kind), b2u(x.shared))
			for _, v := range [...]uint64{uint64(x.off), uint64(x.len), uint64(x.loc), uint64(x.layer)} {
				e.u(v)
			}
			return true
		})
	}
}

// readTrees reads a layer's trees file; ok is false if there is none.
func (l *layer) readTrees(s *state) (h treesHead, ok bool, err error) {
	b, err := durable.ReadFile(l.fs, l.dir+"/"+treesName)
	if errors.Is(err, fs.ErrNotExist) {
		return h, false, nil
	}
	if err != nil {
		return h, false, fmt.Errorf("opening layer %s: %w", l.id, err)
	}
	if err := decodeTrees(b, l.id, &h, s); err != nil {
		return h, false, &CorruptError{Layer: l.id, What: "trees file", Err: err}
	}
	return h, true, nil
}

// reader of a trees file; the first error stays.
type treeReader struct {
	b   []byte
	err error
}

var errTreeShort = errors.New("ends within a field")

func (r *treeReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *treeReader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail(errTreeShort)
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *treeReader) u() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail(errTreeShort)
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *treeReader) i() int64 {
	v := r.u()
	if v > math.MaxInt64/2 {
		r.fail(errors.New("number out of range"))
		return 0
	}
	return int64(v)
}

func (r *treeReader) u32() uint32 {
	v := r.u()
	if v > math.MaxUint32 {
		r.fail(errors.New("number out of range"))
	}
	return uint32(v)
}

func (r *treeReader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// count reads the number of items that take at least size bytes each.
func (r *treeReader) count(size uint64) int {
	n := r.u()
	if n > uint64(len(r.b))/size {
		r.fail(errTreeShort)
		return 0
	}
	return int(n)
}

func (r *treeReader) str() string { return string(r.take(r.u())) }

func (r *treeReader) id16() (id [16]byte) {
	copy(id[:], r.take(16))
	return id
}

func (r *treeReader) time() (int64, uint32) {
	sec, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail(errTreeShort)
		return 0, 0
	}
	r.b = r.b[n:]
	return sec, r.u32()
}

func (r *treeReader) content() (id content.ID, size int64) {
	id.Algo = content.Algo(r.byte())
	copy(id.Digest[:], r.take(32))
	return id, r.i()
}

// decodeTrees fills h and the empty state s.
func decodeTrees(b []byte, layer LayerID, h *treesHead, s *state) error {
	if len(b) < 16 || string(b[:8]) != treesMagic {
		return errors.New("not a trees file")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != treesVersion {
		return fmt.Errorf("version %d; this program reads version %d", v, treesVersion)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Update(layer.Salt(), castagnoli, body) != sum {
		return errors.New("checksum mismatch")
	}
	r := &treeReader{b: body[12:]}
	h.layer, h.boot = r.id16(), r.id16()
	if h.layer != layer {
		return errors.New("belongs to another layer")
	}
	h.base, h.seq, h.offset = r.str(), r.u(), r.i()
	for range r.count(16) {
		h.layers = append(h.layers, r.id16())
	}
	conn := r.id16()
	for range r.count(2) {
		unique := r.u()
		h.replies.add(conn, unique, r.u())
	}
	h.replies.conn = conn
	s.nextIno = r.u()
	for range r.count(34) {
		id, size := r.content()
		s.refs = append(s.refs, contentRef{id, size})
	}
	for range r.count(20) {
		if n := r.node(s, len(h.layers)); r.err == nil {
			s.addLoaded(n)
		}
	}
	for range r.count(6) {
		d := &dirent{dir: r.u(), name: r.str(), ino: r.u(), pos: r.u(), typ: r.byte(), base: r.byte() != 0}
		if r.err != nil {
			break
		}
		s.names.Load(d)
		if d.ino != 0 && d.pos >= image.NewPos {
			s.order.Set(d)
		}
		if n, ok := s.nodes.Get(d.dir); ok && n.dir != nil {
			n.dir.changed++
		}
	}
	if r.err == nil && len(r.b) > 0 {
		return errors.New("bytes behind its end")
	}
	return r.err
}

func (r *treeReader) node(s *state, layers int) *node {
	n := &node{ino: r.u(), epoch: s.epoch, flags: nodeFlags(r.byte())}
	has := r.byte()
	n.parent, n.size, n.baseLen = r.u(), r.i(), r.i()
	n.mode, n.nlink, n.uid, n.gid, n.rdev = r.u32(), r.u32(), r.u32(), r.u32(), r.u32()
	n.mtimeS, n.mtimeN = r.time()
	n.ctimeS, n.ctimeN = r.time()
	n.btimeS, n.btimeN = r.time()
	n.atimeS, n.atimeN = r.time()
	for range r.count(2) {
		n.xattrs = append(n.xattrs, image.Xattr{Name: r.str(), Value: append([]byte(nil), r.take(r.u())...)})
	}
	if has&treeBase != 0 {
		n.base = new(baseContent)
		n.base.content, n.base.size = r.content()
		if g := r.take(r.u()); len(g) > 0 {
			n.base.gitlink = append([]byte(nil), g...)
		}
	}
	if has&treeTarget != 0 {
		n.target = r.str()
	}
	if has&treeDir != 0 {
		n.dir = &dirState{count: int(r.i()), nextPos: r.u()}
	}
	if has&treeExtents != 0 {
		n.ext = r.extents(s, n.baseLen, layers)
	}
	return n
}

func (r *treeReader) extents(s *state, baseLen int64, layers int) *extents {
	x := &extents{epoch: s.epoch}
	count := r.count(6)
	if count > listMax {
		x.tree = new(btree.Map[int64, extent])
	}
	at := int64(0)
	for range count {
		e := extent{kind: extKind(r.byte()), shared: r.byte() != 0, off: r.i(), len: r.i(), loc: r.i(), layer: r.u32()}
		limit := layers
		if e.kind == extRef {
			limit = len(s.refs)
		}
		if r.err == nil && (e.kind < extHole || e.kind > extRef || e.off < at || e.len <= 0 || e.hasBytes() && int(e.layer) >= limit) {
			r.fail(fmt.Errorf("extent %+v behind %d", e, at))
		}
		if r.err != nil {
			return x
		}
		at = e.end()
		x.account(e, baseLen, 1)
		if x.tree != nil {
			x.tree.Load(e.off, e)
		} else {
			x.list = append(x.list, e)
		}
	}
	return x
}

// addLoaded adds an inode and its part of the totals, which newState has set to the base's.
func (s *state) addLoaded(n *node) {
	s.nodes.Load(n.ino, n)
	if n.flags&nodeBase != 0 {
		s.inodes--
		if b, err := s.base.Node(n.ino); err == nil && n.isReg() {
			s.sizes -= b.Size
		}
	} else {
		s.ownInodes++
	}
	if n.flags&nodeGone != 0 {
		return
	}
	s.inodes++
	if n.isReg() {
		s.sizes += n.size
	}
	s.ownBytes += n.ownBytes()
	if n.nlink == 0 {
		s.addOrphan(n.ino)
	}
}
