package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"tine/snapshot/image"
)

// errShort is the reason of every payload that ends too early.
var errShort = errors.New("payload ends within a field")

// Decode parses a payload (what follows length and CRC) into r, whose memory it reuses. Data and names of the
// effects are good as long as p is. Anything that isn't exactly a record is an error.
func Decode(p []byte, r *Record) error {
	r.Reset()
	d := decoder{p: p}
	r.Seq = d.u64()
	flags := d.byte()
	if flags&^(recBegin|recCommit|recReply) != 0 {
		return fmt.Errorf("unknown record flags %#x", flags)
	}
	r.Begin, r.Commit, r.HasReply = flags&recBegin != 0, flags&recCommit != 0, flags&recReply != 0
	r.Gen = d.uvarint()
	r.Time = d.time()
	if r.HasReply {
		r.Unique = d.u64()
		r.Value = d.uvarint()
	}
	for d.err == nil && d.off < len(p) {
		d.effect(r)
	}
	return d.err
}

type decoder struct {
	p   []byte
	off int
	err error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.off = len(d.p)
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.p)-d.off) {
		d.fail(errShort)
		return nil
	}
	b := d.p[d.off : d.off+int(n) : d.off+int(n)]
	d.off += int(n)
	return b
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// minimal refuses encodings with leading zeroes, so that a record has one encoding.
func (d *decoder) minimal(n int) {
	switch {
	case n <= 0:
		d.fail(errShort)
	case n > 1 && d.p[d.off+n-1] == 0:
		d.fail(errors.New("number not in its shortest form"))
	default:
		d.off += n
	}
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.p[d.off:])
	d.minimal(n)
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.p[d.off:])
	d.minimal(n)
	return v
}

func (d *decoder) uint32() uint32 {
	v := d.uvarint()
	if v > math.MaxUint32 {
		d.fail(errors.New("32-bit number out of range"))
	}
	return uint32(v)
}

// size is an offset or a length: never negative, and sums of two don't overflow.
func (d *decoder) size() int64 {
	v := d.uvarint()
	if v > math.MaxInt64/2 {
		d.fail(errors.New("offset out of range"))
		return 0
	}
	return int64(v)
}

func (d *decoder) ino() uint64 {
	v := d.uvarint()
	if v == 0 {
		d.fail(errors.New("inode number 0"))
	}
	return v
}

func (d *decoder) time() image.Time {
	t := image.Time{Sec: d.varint()}
	ns := d.uvarint()
	if ns >= 1e9 {
		d.fail(errors.New("nanoseconds out of range"))
	}
	t.Nsec = uint32(ns)
	return t
}

func (d *decoder) name() string {
	b := d.bytes(d.uvarint())
	if len(b) == 0 || len(b) > 255 {
		d.fail(errors.New("name of no or too many bytes"))
	}
	return string(b)
}

func (d *decoder) data(e *Effect) {
	n := d.uvarint()
	e.At = int64(d.off) + frame
	e.Data = d.bytes(n)
}

func (d *decoder) flags(e *Effect, known uint8) {
	e.Flags = d.byte()
	if e.Flags&^known != 0 {
		d.fail(fmt.Errorf("unknown flags %#x of effect %d", e.Flags, e.Kind))
	}
}

func (d *decoder) effect(r *Record) {
	k := Kind(d.byte())
	if k == 0 || k >= kindEnd {
		d.fail(fmt.Errorf("unknown effect %d", k))
		return
	}
	e := r.Add(k)
	switch k {
	case New:
		e.Ino = d.ino()
		e.Mode, e.UID, e.GID, e.Rdev, e.Nlink = d.uint32(), d.uint32(), d.uint32(), d.uint32(), d.uint32()
		e.Parent = d.uvarint()
		d.data(e)
	case Attr:
		e.Ino = d.ino()
		d.attr(e)
	case Link:
		e.Dir = d.ino()
		e.Name = d.name()
		e.Ino = d.ino()
		e.Type = d.byte()
		e.Pos = d.ino()
	case Unlink:
		e.Dir = d.ino()
		e.Name = d.name()
	case Inline:
		d.flags(e, FlagTouch|FlagKeepSize)
		e.Ino, e.Off = d.ino(), d.size()
		d.data(e)
		e.Len = int64(len(e.Data))
	case Block:
		d.flags(e, FlagTouch|FlagKeepSize)
		e.Ino, e.Off, e.Len, e.Loc = d.ino(), d.size(), d.size(), d.size()
		e.CRC = d.u32()
	case Size:
		d.flags(e, FlagTouch)
		e.Ino, e.Len = d.ino(), d.size()
	case Zero:
		d.flags(e, FlagTouch|FlagKeepSize|FlagReserved)
		e.Ino, e.Off, e.Len = d.ino(), d.size(), d.size()
	case SetXattr:
		e.Ino = d.ino()
		e.Name = d.name()
		d.data(e)
	case DelXattr:
		e.Ino = d.ino()
		e.Name = d.name()
	case Drop:
		e.Ino = d.ino()
	case Sync:
		e.Off, e.Len = d.size(), d.size()
	case Session:
		copy(e.Boot[:], d.bytes(16))
		copy(e.Conn[:], d.bytes(16))
	case Clone:
		d.flags(e, FlagTouch|FlagKeepSize)
		e.Ino, e.Off, e.Len = d.ino(), d.size(), d.size()
		e.Dst, e.DstOff = d.ino(), d.size()
	}
}

func (d *decoder) attr(e *Effect) {
	e.Mask = d.uint32()
	if e.Mask >= maskEnd {
		d.fail(fmt.Errorf("unknown attributes %#x", e.Mask))
		return
	}
	if e.Mask&MaskMode != 0 {
		e.Mode = d.uint32()
	}
	if e.Mask&MaskUID != 0 {
		e.UID = d.uint32()
	}
	if e.Mask&MaskGID != 0 {
		e.GID = d.uint32()
	}
	if e.Mask&MaskNlink != 0 {
		e.Nlink = d.uint32()
	}
	if e.Mask&MaskParent != 0 {
		e.Parent = d.uvarint()
	}
	if e.Mask&MaskAtime != 0 {
		e.Atime = d.time()
	}
	if e.Mask&MaskMtime != 0 {
		e.Mtime = d.time()
	}
	if e.Mask&MaskCtime != 0 {
		e.Ctime = d.time()
	}
}
