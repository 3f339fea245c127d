package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// window is how much a Reader reads at once; more than the largest record.
const window = 2 << 20

// BadRecordError says that the bytes at Off are no record: the end of a torn write, or damage.
type BadRecordError struct {
	Off int64  // bytes from the start of the journal
	Seq uint64 // the sequence number that was expected there
	Why error
}

func (e *BadRecordError) Error() string {
	return fmt.Sprintf("journal record %d at byte %d: %v", e.Seq, e.Off, e.Why)
}

func (e *BadRecordError) Unwrap() error { return e.Why }

// Reader gives a journal's records one after the other.
type Reader struct {
	r    io.ReaderAt
	salt uint32
	end  int64  // file size
	off  int64  // next record
	seq  uint64 // next sequence number
	buf  []byte // bytes [bufOff, bufOff+len(buf)) of the file
	bufO int64
}

// NewReader reads records of the journal with header h from r, which has size bytes.
func NewReader(r io.ReaderAt, h *Header, size int64) *Reader {
	return &Reader{r: r, salt: h.Layer.Salt(), end: size, off: HeaderSize, seq: h.FirstSeq}
}

// NewReaderAt is NewReader for the records from offset off on, the first of which has number seq.
func NewReaderAt(r io.ReaderAt, h *Header, size, off int64, seq uint64) *Reader {
	rd := NewReader(r, h, size)
	rd.off, rd.seq = off, seq
	return rd
}

// Offset is where the next record starts: after io.EOF or a BadRecordError, the length of the valid part.
func (r *Reader) Offset() int64 { return r.off }

// Next decodes the next record into rec and returns where it starts. It returns io.EOF at the end (zeroes up to the
// end of the file are space allocated ahead), a *BadRecordError where no valid record is, and the file's own errors.
// Data of rec's effects is good until the next call.
func (r *Reader) Next(rec *Record) (int64, error) {
	start := r.off
	p, err := r.payload(r.off)
	if err == io.EOF {
		return start, err
	}
	var bad *badFrame
	if errors.As(err, &bad) {
		return start, &BadRecordError{Off: start, Seq: r.seq, Why: bad.why}
	}
	if err != nil {
		return start, err
	}
	if err := Decode(p, rec); err != nil {
		return start, &BadRecordError{Off: start, Seq: r.seq, Why: err}
	}
	if rec.Seq != r.seq {
		return start, &BadRecordError{Off: start, Seq: r.seq, Why: fmt.Errorf("has sequence number %d", rec.Seq)}
	}
	r.off += frame + int64(len(p))
	r.seq++
	return start, nil
}

// FindLater looks behind a bad record for a valid one that keep accepts: proof that the bytes in between were once
// written, acknowledged and are damaged now. It returns its offset, or 0.
func (r *Reader) FindLater(keep func(*Record) bool) (int64, error) {
	var rec Record
	for off := r.off + 1; off+frame+minPayload <= r.end; off++ {
		b, err := r.bytes(off, frame+8)
		if err == errShrunk {
			break
		}
		if err != nil {
			return 0, err
		}
		n := int64(binary.LittleEndian.Uint32(b))
		seq := binary.LittleEndian.Uint64(b[frame:])
		// Only a length and a sequence number that can be right here are worth a checksum.
		if n < minPayload || n > MaxPayload || off+frame+n > r.end || seq < r.seq || seq-r.seq > uint64(off-r.off) {
			continue
		}
		p, err := r.payload(off)
		var bad *badFrame
		if errors.As(err, &bad) || err == io.EOF {
			continue
		}
		if err != nil {
			return 0, err
		}
		if Decode(p, &rec) == nil && keep(&rec) {
			return off, nil
		}
	}
	return 0, nil
}

type badFrame struct{ why error }

func (e *badFrame) Error() string { return e.why.Error() }

// payload returns the checked payload of the record at off.
func (r *Reader) payload(off int64) ([]byte, error) {
	p, err := r.payloadOnce(off)
	if err == errShrunk {
		return r.payloadOnce(off)
	}
	return p, err
}

// errShrunk: the file became shorter while it was read. What is allocated ahead in a closed journal is cut off.
var errShrunk = errors.New("journal became shorter")

func (r *Reader) payloadOnce(off int64) ([]byte, error) {
	left := r.end - off
	if left <= 0 {
		return nil, io.EOF
	}
	if left < frame+minPayload {
		zero, err := r.zeroes(off)
		if err == nil && zero {
			return nil, io.EOF
		}
		return nil, orBad(err, "file ends within a record")
	}
	b, err := r.bytes(off, frame)
	if err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(b))
	switch {
	case n == 0:
		zero, err := r.zeroes(off)
		if err == nil && zero {
			return nil, io.EOF
		}
		return nil, orBad(err, "length 0")
	case n < minPayload || n > MaxPayload:
		return nil, &badFrame{fmt.Errorf("length %d", n)}
	case n > left-frame:
		return nil, &badFrame{errors.New("file ends within a record")}
	}
	if b, err = r.bytes(off, frame+n); err != nil {
		return nil, err
	}
	if checksum(r.salt, b) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, &badFrame{errors.New("checksum mismatch")}
	}
	return b[frame:], nil
}

func orBad(err error, why string) error {
	if err != nil {
		return err
	}
	return &badFrame{errors.New(why)}
}

// zeroes reports whether everything from off on is zero.
func (r *Reader) zeroes(off int64) (bool, error) {
	for off < r.end {
		n := min(r.end-off, 64<<10)
		b, err := r.bytes(off, n)
		if err != nil {
			return false, err
		}
		for _, c := range b {
			if c != 0 {
				return false, nil
			}
		}
		off += n
	}
	return true, nil
}

// bytes returns n bytes at off, which lie within the file.
func (r *Reader) bytes(off, n int64) ([]byte, error) {
	if off < r.bufO || off+n > r.bufO+int64(len(r.buf)) {
		want := min(max(n, window), r.end-off)
		if int64(cap(r.buf)) < want {
			r.buf = make([]byte, want)
		}
		r.buf = r.buf[:want]
		m, err := r.r.ReadAt(r.buf, off)
		r.buf, r.bufO = r.buf[:m], off
		switch {
		case int64(m) == want:
		case err == io.EOF:
			r.end = off + int64(m)
			return nil, errShrunk
		default:
			return nil, fmt.Errorf("reading journal at %d: %w", off, err)
		}
	}
	return r.buf[off-r.bufO : off-r.bufO+n], nil
}
