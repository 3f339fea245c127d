package snapshot

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"tine/snapshot/content"
)

// inlineLimit (256 KiB) is the largest content kept in a segment; larger ones, up to content.MaxSmall, are files of
// their own in STORE/objects, which can be linked, reflinked and passed through.
const inlineLimit = 256 << 10

func (s *Store) objectPath(id content.ID) string {
	h := hex.EncodeToString(id.Bytes())
	return s.path("objects", h[:2], h[2:])
}

// putObject makes the content's file. With durableNow its bytes are on the disk when it returns, its name after Sync.
func (s *Store) putObject(id content.ID, data []byte, durableNow bool) error {
	path := s.objectPath(id)
	dir := filepath.Dir(path)
	if _, err := s.mkdir("objects", filepath.Base(dir)); err != nil {
		return err
	}
	if same, err := s.sameObject(path, data, durableNow); same || err != nil {
		return err
	}
	out, err := s.writer()
	if err != nil {
		return err
	}
	f, err := out.Temp(path, 0o444)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && durableNow {
		err = f.Datasync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		// Renamed over whatever is there: equal bytes, or corrupt ones that this mends. Sync makes the name durable.
		err = s.fs.Rename(f.Name(), path)
	}
	if err != nil {
		_ = s.fs.Remove(f.Name())
		return fmt.Errorf("store %s: %w", id, err)
	}
	s.dirsMu.Lock()
	s.unsync[dir] = true
	s.dirsMu.Unlock()
	return nil
}

// sameObject reports whether the file is there with exactly data, synced if that is asked for (it may have been put there
// by hydration, which doesn't).
func (s *Store) sameObject(path string, data []byte, durableNow bool) (bool, error) {
	f, err := s.fs.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() != int64(len(data)) {
		return false, nil
	}
	buf := make([]byte, 64<<10)
	for off := 0; off < len(data); off += len(buf) {
		n := min(len(buf), len(data)-off)
		if content.ReadFull(f, buf[:n], int64(off)) != nil || !bytes.Equal(buf[:n], data[off:off+n]) {
			return false, nil
		}
	}
	if !durableNow {
		return true, nil
	}
	if err := f.Datasync(); err != nil {
		return false, s.fail(err)
	}
	s.dirsMu.Lock()
	s.unsync[filepath.Dir(path)] = true
	s.dirsMu.Unlock()
	return true, nil
}

// objectReader reads a file in objects/.
type objectReader struct {
	piece
}

func (s *Store) openObject(id content.ID, size int64) (content.Reader, error) {
	path := s.objectPath(id)
	f, err := s.fs.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &content.MissingError{ID: id, Cause: err}
	}
	if err != nil {
		return nil, &content.CorruptError{ID: id, Why: err.Error()}
	}
	r := &objectReader{piece{store: s, id: id, file: f, size: size, where: path}}
	st, err := f.Stat()
	if err == nil && (st.Size() != size || !st.Mode().IsRegular()) {
		err = fmt.Errorf("a file of %d bytes instead of %d", st.Size(), size)
	}
	if err == nil && s.sums.get(id) == nil {
		_, err = r.verify()
		if err != nil {
			f.Close()
			return nil, err
		}
	}
	if err != nil {
		f.Close()
		return nil, r.corrupt(err.Error())
	}
	return r, nil
}

func (r *objectReader) Size() int64  { return r.size }
func (r *objectReader) Close() error { return r.file.Close() }

func (r *objectReader) ReadAt(p []byte, off int64) (int, error) {
	part, eof := clamp(p, off, r.size)
	if len(part) == 0 {
		return 0, eof
	}
	if err := r.readAt(part, off); err != nil {
		return 0, err
	}
	return len(part), eof
}
