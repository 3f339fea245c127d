package gitimport

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// spoolMemory (16 MiB) is what a spool keeps in memory; packs of one commit are smaller nearly always.
const spoolMemory = 16 << 20

// spool is a growing run of bytes, in memory while it is small, then in a file without a name, which no crash can
// leave behind. The bytes can be read at any time, by several readers.
type spool struct {
	dir  string // where the file would be
	mem  []byte
	file *os.File
	size int64
	buf  []byte // not yet in file; what is before is size - len(buf) bytes long
}

func newSpool(dir string) *spool { return &spool{dir: dir} }

func (s *spool) Write(p []byte) (int, error) {
	if s.file == nil {
		if len(s.mem)+len(p) <= spoolMemory {
			s.mem = append(s.mem, p...)
			s.size += int64(len(p))
			return len(p), nil
		}
		if err := s.spill(); err != nil {
			return 0, err
		}
	}
	s.buf = append(s.buf, p...)
	s.size += int64(len(p))
	if len(s.buf) >= 1<<20 {
		return len(p), s.flush()
	}
	return len(p), nil
}

func (s *spool) spill() error {
	fd, err := unix.Open(s.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		s.file = os.NewFile(uintptr(fd), s.dir+" (temporary)")
	} else {
		// The file system has no O_TMPFILE.
		f, err := os.CreateTemp(s.dir, ".tmp-")
		if err != nil {
			return fmt.Errorf("temporary file: %w", err)
		}
		if err := os.Remove(f.Name()); err != nil {
			f.Close()
			return fmt.Errorf("temporary file: %w", err)
		}
		s.file = f
	}
	s.buf, s.mem = s.mem, nil
	return s.flush()
}

// flush writes what is buffered; afterwards ReadAt sees everything.
func (s *spool) flush() error {
	if s.file == nil || len(s.buf) == 0 {
		return nil
	}
	_, err := s.file.Write(s.buf)
	s.buf = s.buf[:0]
	if err != nil {
		return fmt.Errorf("temporary file: %w", err)
	}
	return nil
}

// patch overwrites bytes that are already there.
func (s *spool) patch(off int64, p []byte) error {
	if s.file == nil {
		copy(s.mem[off:], p)
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	_, err := s.file.WriteAt(p, off)
	return err
}

// ReadAt needs a flush after the last Write.
func (s *spool) ReadAt(p []byte, off int64) (int, error) {
	if s.file != nil {
		return s.file.ReadAt(p, off)
	}
	return bytes.NewReader(s.mem).ReadAt(p, off)
}

// Size in bytes.
func (s *spool) Size() int64 { return s.size }

// Close frees memory and file.
func (s *spool) Close() error {
	s.mem, s.buf = nil, nil
	if s.file != nil {
		return s.file.Close()
	}
	return nil
}

var _ io.ReaderAt = (*spool)(nil)
