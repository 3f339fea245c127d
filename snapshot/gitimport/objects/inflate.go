package objects

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/klauspost/compress/zlib"
)

// inflater is a pooled zlib reader over a pooled buffer.
type inflater struct {
	buf *bufio.Reader
	z   io.ReadCloser
}

// Two pools, since most objects are small and a large buffer would read bytes of the next ones.
var smallInflaters, largeInflaters sync.Pool

const (
	smallInflate = 1 << 10
	largeInflate = 32 << 10
)

func newInflater(r io.Reader, size int64) (*inflater, error) {
	pool, n := &smallInflaters, smallInflate
	if size > smallInflate {
		pool, n = &largeInflaters, largeInflate
	}
	z, _ := pool.Get().(*inflater)
	if z == nil {
		z = &inflater{buf: bufio.NewReaderSize(r, n)}
		var err error
		if z.z, err = zlib.NewReader(z.buf); err != nil {
			return nil, err
		}
		return z, nil
	}
	z.buf.Reset(r)
	if err := z.z.(zlib.Resetter).Reset(z.buf, nil); err != nil {
		z.release()
		return nil, err
	}
	return z, nil
}

func (z *inflater) Read(p []byte) (int, error) { return z.z.Read(p) }

func (z *inflater) release() {
	if z.buf.Size() == smallInflate {
		smallInflaters.Put(z)
	} else {
		largeInflaters.Put(z)
	}
}

// atEnd checks that the stream ends here; this also verifies its checksum.
func (z *inflater) atEnd() error {
	var one [1]byte
	n, err := z.z.Read(one[:])
	if n != 0 {
		return errors.New("its data is longer than its header says")
	}
	if err == io.EOF {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

// copyExactly writes size bytes and checks the end. Errors of reading go through wrap, those of w don't.
func (z *inflater) copyExactly(w io.Writer, size int64, wrap func(error) error) (int64, error) {
	buf := make([]byte, min(size, 256<<10))
	for done := int64(0); done < size; {
		b := buf[:min(int64(len(buf)), size-done)]
		if _, err := io.ReadFull(z, b); err != nil {
			return done, wrap(err)
		}
		n, err := w.Write(b)
		done += int64(n)
		if err != nil {
			return done, err
		}
	}
	if err := z.atEnd(); err != nil {
		return size, wrap(err)
	}
	return size, nil
}

// openLoose opens a loose object and reads its header "type size\0".
func openLoose(path string) (*os.File, *inflater, Type, int64, error) {
	f, st, err := OpenRegular(path)
	if err != nil {
		return nil, nil, 0, 0, err
	}
	corrupt := func(why string) (*os.File, *inflater, Type, int64, error) {
		f.Close()
		return nil, nil, 0, 0, &CorruptError{File: path, Why: why}
	}
	z, err := newInflater(f, st.Size())
	if err != nil {
		return corrupt(err.Error())
	}
	var head [32]byte
	for i := range head {
		if _, err := io.ReadFull(z, head[i:i+1]); err != nil {
			z.release()
			return corrupt(err.Error())
		}
		if head[i] != 0 {
			continue
		}
		typ, size, err := parseLooseHeader(head[:i])
		if err != nil {
			z.release()
			return corrupt(err.Error())
		}
		return f, z, typ, size, nil
	}
	z.release()
	return corrupt("its header is too long")
}

func parseLooseHeader(b []byte) (Type, int64, error) {
	name, num, ok := bytes.Cut(b, []byte(" "))
	if ok {
		size, err := strconv.ParseInt(string(num), 10, 63)
		if err == nil && size >= 0 {
			for t, s := range typeNames {
				if s == string(name) {
					return t, size, nil
				}
			}
		}
	}
	return 0, 0, fmt.Errorf("its header is %q", b)
}

func looseHeader(path string) (Type, int64, error) {
	f, z, typ, size, err := openLoose(path)
	if err != nil {
		return 0, 0, err
	}
	z.release()
	return typ, size, f.Close()
}

func readLoose(path string) (Type, []byte, error) {
	f, z, typ, size, err := openLoose(path)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	defer z.release()
	corrupt := func(err error) error { return &CorruptError{File: path, Why: err.Error()} }
	if size > maxInMemory {
		return 0, nil, corrupt(fmt.Errorf("a %s of %d bytes is too large", typ, size))
	}
	var buf bytes.Buffer // grows with what is there, whatever the header says
	buf.Grow(int(min(size, 16<<20)))
	_, err = z.copyExactly(&buf, size, corrupt)
	data := buf.Bytes()
	if data == nil {
		data = []byte{} // nil would mean "no object"
	}
	return typ, data, err
}

func streamLoose(path string, head func(Type, int64), w io.Writer) (int64, error) {
	f, z, typ, size, err := openLoose(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	defer z.release()
	head(typ, size)
	return z.copyExactly(w, size, func(err error) error { return &CorruptError{File: path, Why: err.Error()} })
}
