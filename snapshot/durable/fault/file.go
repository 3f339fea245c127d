package fault

import (
	"io"

	"tine/snapshot/durable"
)

// file is an open file; reads go straight to the one inside.
type file struct {
	durable.File
	fs     *FS
	id     int // in the recording; 0 outside of it
	append bool
}

func (f *file) Write(b []byte) (n int, err error) {
	off, err := f.offset()
	if err != nil {
		return 0, err
	}
	err = f.fs.do(Op{Kind: Write, Path: f.Name(), Off: off, Len: int64(len(b))},
		func() (err error) { n, err = f.File.Write(b); return err },
		func() (err error) {
			n, err = f.File.Write(b[:len(b)/2])
			f.fs.rec.write(f.id, off, b[:n])
			return err
		},
		func(r *Recording) { r.write(f.id, off, b) })
	return n, err
}

// offset is where Write will write.
func (f *file) offset() (int64, error) {
	if !f.append {
		return f.Seek(0, io.SeekCurrent)
	}
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f *file) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.fs.do(Op{Kind: Write, Path: f.Name(), Off: off, Len: int64(len(b))},
		func() (err error) { n, err = f.File.WriteAt(b, off); return err },
		func() (err error) {
			n, err = f.File.WriteAt(b[:len(b)/2], off)
			f.fs.rec.write(f.id, off, b[:n])
			return err
		},
		func(r *Recording) { r.write(f.id, off, b) })
	return n, err
}

func (f *file) Truncate(size int64) error {
	return f.fs.do(Op{Kind: Truncate, Path: f.Name(), Off: size}, func() error { return f.File.Truncate(size) }, nil,
		func(r *Recording) { r.truncate(f.id, size) })
}

func (f *file) Sync() error {
	return f.fs.do(Op{Kind: Sync, Path: f.Name()}, f.File.Sync, nil, func(r *Recording) { r.sync(f.id) })
}

func (f *file) Datasync() error {
	return f.fs.do(Op{Kind: Datasync, Path: f.Name()}, f.File.Datasync, nil, func(r *Recording) { r.sync(f.id) })
}

func (f *file) Allocate(off, n int64) error {
	return f.fs.do(Op{Kind: Allocate, Path: f.Name(), Off: off, Len: n}, func() error { return f.File.Allocate(off, n) }, nil,
		func(r *Recording) { r.allocate(f.id, off+n) })
}

func (f *file) PunchHole(off, n int64) error {
	return f.fs.do(Op{Kind: PunchHole, Path: f.Name(), Off: off, Len: n}, func() error { return f.File.PunchHole(off, n) }, nil,
		func(r *Recording) { r.punch(f.id, off, n) })
}
