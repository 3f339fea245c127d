package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	magic = "tineJRNL"
	// Version is the only one that this package reads and writes.
	Version = 1
	// HeaderSize is the journal's first block: fields, zeroes, CRC32C in the last four bytes.
	HeaderSize = 512
	maxText    = 128 // bytes of the fork's and the base's id
)

// Header is a journal's first HeaderSize bytes, written once.
type Header struct {
	Layer    LayerID
	Parent   LayerID // the layer below; zero for a fork's first
	FirstSeq uint64
	Gen      uint64
	Boot     [16]byte // the machine's boot when it was made
	Fork     string   // at most 128 bytes
	Base     string   // checkpoint id, at most 128 bytes
}

// ErrNoHeader says that a header's bytes are zero: a power cut took it, or damage did.
var ErrNoHeader = errors.New("journal without a header")

// VersionError says that a file is of a version that this program doesn't read.
type VersionError struct{ Found, Known uint32 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("journal of version %d; this program reads version %d", e.Found, e.Known)
}

// Encode gives the header's bytes.
func (h *Header) Encode() ([]byte, error) {
	if len(h.Fork) > maxText || len(h.Base) > maxText {
		return nil, fmt.Errorf("fork or base id of more than %d bytes", maxText)
	}
	b := make([]byte, HeaderSize)
	copy(b, magic)
	le := binary.LittleEndian
	le.PutUint32(b[8:], Version)
	le.PutUint32(b[12:], HeaderSize)
	copy(b[16:], h.Layer[:])
	copy(b[32:], h.Parent[:])
	le.PutUint64(b[48:], h.FirstSeq)
	le.PutUint64(b[56:], h.Gen)
	copy(b[64:], h.Boot[:])
	le.PutUint16(b[80:], uint16(len(h.Fork)))
	le.PutUint16(b[82:], uint16(len(h.Base)))
	copy(b[84:], h.Fork)
	copy(b[84+maxText:], h.Base)
	le.PutUint32(b[HeaderSize-4:], crc32.Update(h.Layer.Salt(), castagnoli, b[:HeaderSize-4]))
	return b, nil
}

// ReadHeader reads and checks a journal's header. An empty file gives io.EOF, a partial header
// io.ErrUnexpectedEOF: both are what a crash while making a layer leaves.
func ReadHeader(r io.ReaderAt) (Header, error) {
	var h Header
	b := make([]byte, HeaderSize)
	if n, err := r.ReadAt(b, 0); n < HeaderSize {
		if err == io.EOF && n > 0 {
			err = io.ErrUnexpectedEOF
		}
		return h, err
	}
	le := binary.LittleEndian
	if bytes.Equal(b, make([]byte, HeaderSize)) {
		return h, ErrNoHeader
	}
	if string(b[:8]) != magic {
		return h, fmt.Errorf("not a journal: magic %q", b[:8])
	}
	if v := le.Uint32(b[8:]); v != Version {
		return h, &VersionError{Found: v, Known: Version}
	}
	copy(h.Layer[:], b[16:])
	if le.Uint32(b[HeaderSize-4:]) != crc32.Update(h.Layer.Salt(), castagnoli, b[:HeaderSize-4]) {
		return h, fmt.Errorf("journal header: checksum mismatch")
	}
	copy(h.Parent[:], b[32:])
	h.FirstSeq, h.Gen = le.Uint64(b[48:]), le.Uint64(b[56:])
	copy(h.Boot[:], b[64:])
	nf, nb := int(le.Uint16(b[80:])), int(le.Uint16(b[82:]))
	if nf > maxText || nb > maxText || le.Uint32(b[12:]) != HeaderSize {
		return h, fmt.Errorf("journal header: lengths out of range")
	}
	h.Fork, h.Base = string(b[84:84+nf]), string(b[84+maxText:84+maxText+nb])
	if enc, err := h.Encode(); err != nil || !bytes.Equal(enc, b) {
		return h, fmt.Errorf("journal header: bytes outside its fields")
	}
	return h, nil
}
