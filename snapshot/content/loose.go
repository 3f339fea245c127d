package content

import (
	"encoding/binary"
	"hash/adler32"
	"io"
	"strconv"
	"sync"
)

// The canonical loose encoding of a blob is a zlib stream (RFC 1950) of "blob SIZE\0" and the blob's bytes, in stored
// blocks of looseBlock bytes, the last one shorter unless it is full too. So its size follows from the blob's, no
// bytes depend on a compressor, and any part can be produced without the rest, the final checksum excepted.
const (
	looseBlock   = 65535 // RFC 1951's largest stored block
	looseStart   = 2     // 0x78 0x01
	looseFraming = 5     // a stored block's header: BFINAL and BTYPE, LEN, NLEN
	looseEnd     = 4     // Adler-32, big endian
)

// LooseSize is the size in bytes of the canonical loose encoding of a blob of size bytes.
func LooseSize(size int64) int64 {
	inner := int64(len(objectHeader("blob", size))) + size
	return looseStart + looseBlocks(inner)*looseFraming + inner + looseEnd
}

func looseBlocks(inner int64) int64 { return (inner + looseBlock - 1) / looseBlock }

// looseBlobSize is the inverse of LooseSize, taken from the encoding's first bytes; ok is false where they can't start a
// canonical encoding of exactly encoded bytes.
func looseBlobSize(start []byte, encoded int64) (int64, bool) {
	const at = looseStart + looseFraming
	if len(start) < at+7 || start[0] != 0x78 || start[1] != 0x01 || start[2] > 1 || string(start[at:at+5]) != "blob " {
		return 0, false
	}
	digits := 0
	for digits < 19 && at+5+digits < len(start) && start[at+5+digits] != 0 {
		digits++
	}
	if at+5+digits >= len(start) || start[at+5+digits] != 0 {
		return 0, false
	}
	text := string(start[at+5 : at+5+digits])
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil || size < 0 || size > encoded || strconv.FormatInt(size, 10) != text || LooseSize(size) != encoded {
		return 0, false
	}
	return size, true
}

// blockHeader writes the header of block i of an encoding with inner bytes in all.
func blockHeader(b *[looseFraming]byte, i, inner int64) {
	n := min(looseBlock, inner-i*looseBlock)
	b[0] = 0
	if (i+1)*looseBlock >= inner {
		b[0] = 1
	}
	binary.LittleEndian.PutUint16(b[1:], uint16(n))
	binary.LittleEndian.PutUint16(b[3:], ^uint16(n))
}

// NewLoose reads the canonical loose encoding of blob and closes blob when closed.
func NewLoose(blob Reader) Reader {
	head := objectHeader("blob", blob.Size())
	return &looseReader{blob: blob, head: head, inner: int64(len(head)) + blob.Size()}
}

type looseReader struct {
	blob  Reader
	head  []byte
	inner int64 // len(head) + blob's size

	once sync.Once // the checksum needs all of blob; it is computed when its bytes are first asked for
	sum  [looseEnd]byte
	err  error
}

func (l *looseReader) Size() int64  { return LooseSize(l.blob.Size()) }
func (l *looseReader) Close() error { return l.blob.Close() }

func (l *looseReader) checksum() ([looseEnd]byte, error) {
	l.once.Do(func() {
		h := adler32.New()
		h.Write(l.head)
		if l.err = copyTo(h, l.blob, 0, l.blob.Size()); l.err == nil {
			binary.BigEndian.PutUint32(l.sum[:], h.Sum32())
		}
	})
	return l.sum, l.err
}

func (l *looseReader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n := 0
	for n < len(p) && off < l.Size() {
		k, err := l.readPiece(p[n:], off)
		n, off = n+k, off+int64(k)
		if err != nil {
			return n, err
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readPiece reads at least a byte of the one piece (start, block header, header, blob bytes, checksum) that off is in.
func (l *looseReader) readPiece(p []byte, off int64) (int, error) {
	if off < looseStart {
		return copy(p, []byte{0x78, 0x01}[off:]), nil
	}
	off -= looseStart
	if end := l.inner + looseBlocks(l.inner)*looseFraming; off >= end {
		sum, err := l.checksum()
		if err != nil {
			return 0, err
		}
		return copy(p, sum[off-end:]), nil
	}
	block, at := off/(looseBlock+looseFraming), off%(looseBlock+looseFraming)
	if at < looseFraming {
		var b [looseFraming]byte
		blockHeader(&b, block, l.inner)
		return copy(p, b[at:]), nil
	}
	in := block*looseBlock + at - looseFraming // offset in head + blob
	if in < int64(len(l.head)) {
		return copy(p, l.head[in:]), nil
	}
	n := min(int64(len(p)), (block+1)*looseBlock-in, l.inner-in)
	if err := ReadFull(l.blob, p[:n], in-int64(len(l.head))); err != nil {
		return 0, err
	}
	return int(n), nil
}

// OpenLoose tells whether r's size bytes are exactly a canonical loose encoding, all of it read and its checksum right, and
// gives the blob inside. It reads 32 bytes of nearly all files that are not. Closing the blob doesn't close r.
func OpenLoose(r io.ReaderAt, size int64) (blob Reader, ok bool, err error) {
	if size < LooseSize(0) {
		return nil, false, nil
	}
	start := make([]byte, min(size, 32))
	if err := ReadFull(r, start, 0); err != nil {
		return nil, false, err
	}
	n, ok := looseBlobSize(start, size)
	if !ok {
		return nil, false, nil
	}
	body := newLooseBody(r, n)
	ok, err = body.check()
	if !ok || err != nil {
		return nil, false, err
	}
	return body, true, nil
}

// looseBody reads the blob inside an encoding.
type looseBody struct {
	r    io.ReaderAt
	head []byte
	size int64
}

func newLooseBody(r io.ReaderAt, size int64) *looseBody {
	return &looseBody{r: r, head: objectHeader("blob", size), size: size}
}

func (b *looseBody) Size() int64  { return b.size }
func (b *looseBody) Close() error { return nil }

func (b *looseBody) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n := 0
	for n < len(p) && off < b.size {
		in := int64(len(b.head)) + off
		block := in / looseBlock
		k := min(int64(len(p)-n), (block+1)*looseBlock-in, b.size-off)
		if err := ReadFull(b.r, p[n:n+int(k)], looseStart+(block+1)*looseFraming+in); err != nil {
			return n, err
		}
		n, off = n+int(k), off+k
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// check compares framing and checksum with the canonical ones.
func (b *looseBody) check() (bool, error) {
	inner := int64(len(b.head)) + b.size
	buf := make([]byte, looseFraming+looseBlock)
	sum := adler32.New()
	off := int64(looseStart)
	for i := range looseBlocks(inner) {
		piece := buf[:looseFraming+min(looseBlock, inner-i*looseBlock)]
		if err := ReadFull(b.r, piece, off); err != nil {
			return false, err
		}
		var want [looseFraming]byte
		blockHeader(&want, i, inner)
		if [looseFraming]byte(piece) != want {
			return false, nil
		}
		sum.Write(piece[looseFraming:])
		off += int64(len(piece))
	}
	var end [looseEnd]byte
	if err := ReadFull(b.r, end[:], off); err != nil {
		return false, err
	}
	return binary.BigEndian.Uint32(end[:]) == sum.Sum32(), nil
}

// looseBodyOf returns a copy of the blob inside data if data are a canonical loose encoding.
func looseBodyOf(data []byte) ([]byte, bool) {
	r, ok, err := OpenLoose(bytesReader(data), int64(len(data)))
	if err != nil || !ok {
		return nil, false
	}
	b := make([]byte, r.Size())
	if ReadFull(r, b, 0) != nil {
		return nil, false
	}
	return b, true
}
