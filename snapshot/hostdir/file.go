package hostdir

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// File is an open regular file. It tells of its holes (content.Sparse).
type File struct {
	*os.File
	Info Info // when it was opened
}

// Stat looks at the file again.
func (f *File) Stat() (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Info{}, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return info(&st), nil
}

// Size is the size in bytes when it was opened.
func (f *File) Size() int64 { return f.Info.Size }

// NextData implements content.Sparse with lseek(SEEK_DATA). A file system that can't tell gives one range.
func (f *File) NextData(off int64) (start, end int64) {
	size := f.Info.Size
	start, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size
	case err != nil:
		return off, size
	}
	end, err = unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
	if err != nil {
		return start, size
	}
	return min(start, size), min(end, size)
}
