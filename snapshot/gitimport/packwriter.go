package gitimport

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"hash/adler32"
	"hash/crc32"
	"io"
	"slices"

	"tine/snapshot/gitimport/objects"
)

// packWriter makes a pack of version 2 whose bytes are a function of the objects and their order alone: its zlib
// streams are stored blocks, and its deltas are made by makeDelta below, so that no library's compressor can change
// the id of a checkpoint (L3).
type packWriter struct {
	out     *spool
	items   []packed
	offsets map[objects.ID]int // index in items
	scratch []byte
}

type packed struct {
	id    objects.ID
	crc   uint32
	off   int64
	depth int // of its delta chain; 0 for a whole object
}

// maxDepth is git's default for delta chains.
const maxDepth = 50

func newPackWriter(out *spool) (*packWriter, error) {
	w := &packWriter{out: out, offsets: map[objects.ID]int{}}
	_, err := out.Write([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x00"))
	return w, err
}

func (w *packWriter) has(id objects.ID) bool { _, ok := w.offsets[id]; return ok }

// add appends an object once, as a delta against base where that is in the pack already and it pays.
func (w *packWriter) add(id objects.ID, typ objects.Type, data []byte, baseID objects.ID, base []byte) error {
	if w.has(id) {
		return nil
	}
	at := w.out.Size()
	item := packed{id: id, off: at}
	b := w.scratch[:0]
	whole := true
	if i, ok := w.offsets[baseID]; ok && base != nil && w.items[i].depth < maxDepth {
		if delta := makeDelta(base, data); len(delta) < len(data)/2 {
			item.depth = w.items[i].depth + 1
			b = appendEntryHeader(b, 6, len(delta))
			b = appendDistance(b, at-w.items[i].off)
			b = appendStored(b, delta)
			whole = false
		}
	}
	if whole {
		b = appendEntryHeader(b, byte(typ), len(data))
		b = appendStored(b, data)
	}
	item.crc = crc32.ChecksumIEEE(b)
	w.offsets[id] = len(w.items)
	w.items = append(w.items, item)
	w.scratch = b
	_, err := w.out.Write(b)
	return err
}

func appendEntryHeader(b []byte, typ byte, size int) []byte {
	c := typ<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		b = append(b, c|0x80)
		c = byte(size & 0x7f)
	}
	return append(b, c)
}

// appendDistance is git's offset encoding: big endian, 7 bits a byte, each continuation adding one.
func appendDistance(b []byte, d int64) []byte {
	var buf [10]byte
	i := len(buf) - 1
	buf[i] = byte(d & 0x7f)
	for d >>= 7; d > 0; d >>= 7 {
		d--
		i--
		buf[i] = 0x80 | byte(d&0x7f)
	}
	return append(b, buf[i:]...)
}

// appendStored appends a zlib stream in stored blocks.
func appendStored(b, data []byte) []byte {
	b = append(b, 0x78, 0x01)
	sum := adler32.Checksum(data)
	for {
		n := min(len(data), 65535)
		last := byte(0)
		if n == len(data) {
			last = 1
		}
		b = append(b, last, byte(n), byte(n>>8), ^byte(n), ^byte(n>>8))
		b = append(b, data[:n]...)
		data = data[n:]
		if last == 1 {
			break
		}
	}
	return binary.BigEndian.AppendUint32(b, sum)
}

// makeDelta makes data from base: the common beginning, what differs, the common end. For two versions of a tree, of
// which mostly one entry differs, nothing is better.
func makeDelta(base, data []byte) []byte {
	n := min(len(base), len(data))
	head := 0
	for head < n && base[head] == data[head] {
		head++
	}
	tail := 0
	for tail < n-head && base[len(base)-1-tail] == data[len(data)-1-tail] {
		tail++
	}
	b := appendDeltaSize(nil, len(base))
	b = appendDeltaSize(b, len(data))
	b = appendCopy(b, 0, head)
	for rest := data[head : len(data)-tail]; len(rest) > 0; {
		k := min(len(rest), 127)
		b = append(b, byte(k))
		b = append(b, rest[:k]...)
		rest = rest[k:]
	}
	return appendCopy(b, len(base)-tail, tail)
}

func appendDeltaSize(b []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

func appendCopy(b []byte, off, n int) []byte {
	for n > 0 {
		k := min(n, 0xffff)
		at := len(b)
		b = append(b, 0x80)
		for i := range 4 {
			if c := byte(off >> (8 * i)); c != 0 {
				b[at] |= 1 << i
				b = append(b, c)
			}
		}
		for i := range 2 {
			if c := byte(k >> (8 * i)); c != 0 {
				b[at] |= 0x10 << i
				b = append(b, c)
			}
		}
		off, n = off+k, n-k
	}
	return b
}

// finish completes the pack and returns its checksum and its index.
func (w *packWriter) finish() (sum [20]byte, idx []byte, err error) {
	var count [4]byte
	binary.BigEndian.PutUint32(count[:], uint32(len(w.items)))
	if err := w.out.patch(8, count[:]); err != nil {
		return sum, nil, err
	}
	if err := w.out.flush(); err != nil {
		return sum, nil, err
	}
	h := sha1.New()
	if _, err := io.Copy(h, io.NewSectionReader(w.out, 0, w.out.Size())); err != nil {
		return sum, nil, err
	}
	h.Sum(sum[:0])
	if _, err := w.out.Write(sum[:]); err != nil {
		return sum, nil, err
	}
	if err := w.out.flush(); err != nil {
		return sum, nil, err
	}
	return sum, w.index(sum), nil
}

// index is the pack's index, version 2 (objects/index.go has its layout).
func (w *packWriter) index(pack [20]byte) []byte {
	items := slices.Clone(w.items)
	slices.SortFunc(items, func(a, b packed) int { return bytes.Compare(a.id[:], b.id[:]) })
	b := make([]byte, 0, 8+1024+28*len(items)+40)
	b = append(b, "\xfftOc\x00\x00\x00\x02"...)
	n := 0
	for first := range 256 {
		for n < len(items) && int(items[n].id[0]) == first {
			n++
		}
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	for i := range items {
		b = append(b, items[i].id[:]...)
	}
	for i := range items {
		b = binary.BigEndian.AppendUint32(b, items[i].crc)
	}
	var large []byte
	for i := range items {
		off := items[i].off
		if off >= 1<<31 {
			b = binary.BigEndian.AppendUint32(b, 1<<31|uint32(len(large)/8))
			large = binary.BigEndian.AppendUint64(large, uint64(off))
			continue
		}
		b = binary.BigEndian.AppendUint32(b, uint32(off))
	}
	b = append(b, large...)
	b = append(b, pack[:]...)
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}
