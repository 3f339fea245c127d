package image

import (
	"hash/crc32"
	"io"

	"tine/snapshot/durable"
)

// Encoded is a finished image that is not yet a file. It is an io.WriterTo.
type Encoded struct {
	header   *header
	sections [numSections][]byte
}

// Identity is that of the tree, also of a delta's.
func (e *Encoded) Identity() Identity { return e.header.id }

// Size is the file's in bytes.
func (e *Encoded) Size() int64 { return int64(e.header.fileSize) }

// Write publishes the image at path (0444), replacing what was there.
func (e *Encoded) Write(fsys durable.FS, path string) error {
	return durable.WriteFrom(fsys, path, e, 0o444)
}

// layOut places the sections and computes the checksums.
func layOut(h *header, sections [numSections][]byte) *Encoded {
	h.id.Format, h.id.ObjectFormat = identityFormat, h.format
	e := &Encoded{header: h, sections: sections}
	off := uint64(pageSize)
	for i := range secCRC {
		h.sections[i] = extent{off, uint64(len(sections[i]))}
		off = alignUp(off+uint64(len(sections[i])), sectionAlign)
	}
	off = alignUp(off, pageSize)
	w := &pageWriter{w: io.Discard, crcs: make([]byte, 0, 4*(off/pageSize))}
	e.writeBody(w)
	e.sections[secCRC] = w.crcs
	h.sections[secCRC] = extent{off, uint64(len(w.crcs))}
	h.fileSize = off + uint64(len(w.crcs))
	h.crcOfCRC = crc32.Checksum(w.crcs, castagnoli)
	return e
}

func alignUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

// WriteTo writes the whole file.
func (e *Encoded) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(e.header.encode())
	written := int64(n)
	if err != nil {
		return written, err
	}
	p := &pageWriter{w: w}
	e.writeBody(p)
	written += p.written
	if p.err != nil {
		return written, p.err
	}
	n, err = w.Write(e.sections[secCRC])
	return written + int64(n), err
}

// writeBody writes everything between the header and the checksums.
func (e *Encoded) writeBody(p *pageWriter) {
	for i := range secCRC {
		p.write(e.sections[i])
		p.align(sectionAlign)
	}
	p.align(pageSize)
	p.flush()
}

// pageWriter gathers bytes into writes of whole pages, and checksums the pages when crcs isn't nil.
type pageWriter struct {
	w       io.Writer
	buf     []byte
	crcs    []byte
	written int64
	err     error
}

// pageBatch (256 KiB) is large enough for the system call not to matter.
const pageBatch = 64 * pageSize

func (p *pageWriter) write(b []byte) {
	if p.buf == nil {
		p.buf = make([]byte, 0, pageBatch)
	}
	for len(b) > 0 {
		n := min(len(b), pageBatch-len(p.buf))
		p.buf = append(p.buf, b[:n]...)
		b = b[n:]
		if len(p.buf) == pageBatch {
			p.flush()
		}
	}
}

func (p *pageWriter) align(to int) {
	var zero [pageSize]byte
	if n := len(p.buf) % to; n != 0 {
		p.write(zero[:to-n])
	}
}

// flush is called with whole pages in the buffer.
func (p *pageWriter) flush() {
	if p.crcs != nil {
		for b := p.buf; len(b) > 0; b = b[pageSize:] {
			p.crcs = le.AppendUint32(p.crcs, crc32.Checksum(b[:pageSize], castagnoli))
		}
	}
	if p.err == nil && len(p.buf) > 0 {
		n, err := p.w.Write(p.buf)
		p.written += int64(n)
		p.err = err
	}
	p.buf = p.buf[:0]
}
