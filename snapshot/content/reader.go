package content

import (
	"bytes"
	"errors"
	"io"
)

// Sparse is implemented by readers that know ranges of zeroes without reading them.
type Sparse interface {
	// NextData returns the first range [start, end) at or after off that may hold anything but zeroes. start is the
	// content's size when only zeroes follow.
	NextData(off int64) (start, end int64)
}

// IsHole reports whether r says that [off, off+n) are zeroes; false when r doesn't know.
func IsHole(r io.ReaderAt, off, n int64) bool {
	s, ok := r.(Sparse)
	if !ok {
		return false
	}
	start, _ := s.NextData(off)
	return start >= off+n
}

// ReadFull fills buf from off. A source that ends early gives io.ErrUnexpectedEOF, never a short success.
func ReadFull(r io.ReaderAt, buf []byte, off int64) error {
	n, err := r.ReadAt(buf, off)
	switch {
	case n == len(buf):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// copyTo writes r's bytes [off, off+n) to w in pieces.
func copyTo(w io.Writer, r io.ReaderAt, off, n int64) error {
	buf := make([]byte, min(n, 256<<10))
	for n > 0 {
		k := min(n, int64(len(buf)))
		if err := ReadFull(r, buf[:k], off); err != nil {
			return err
		}
		if _, err := w.Write(buf[:k]); err != nil {
			return err
		}
		off, n = off+k, n-k
	}
	return nil
}

// WriteTo writes all of r to w. Nothing of w is a statement about r unless the error is nil.
func WriteTo(w io.Writer, r Reader) error { return copyTo(w, r, 0, r.Size()) }

// ReadAll reads r to its end, at most limit bytes of it.
func ReadAll(r Reader, limit int64) ([]byte, error) {
	if r.Size() > limit {
		return nil, errors.New("content is larger than what may be read at once")
	}
	b := make([]byte, r.Size())
	if err := ReadFull(r, b, 0); err != nil {
		return nil, err
	}
	return b, nil
}

type memory struct{ bytes.Reader }

func (*memory) Close() error { return nil }

// FromBytes reads data, which must not change any more.
func FromBytes(data []byte) Reader {
	m := &memory{}
	m.Reset(data)
	return m
}

func bytesReader(data []byte) io.ReaderAt { return bytes.NewReader(data) }
