package durable

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// TempPrefix begins the name of every temporary file; what has it and is not open belongs to a process that died.
const TempPrefix = ".tmp-"

// Writer publishes whole files. Tmp is a directory on the same file system as what is written, where unfinished
// files lie; when it is empty they lie beside their destination.
type Writer struct {
	FS  FS
	Tmp string
}

// WriteFile publishes data at path, replacing what was there, and returns once it is durable.
func (w Writer) WriteFile(path string, data []byte, perm fs.FileMode) error {
	return w.WriteFrom(path, bytes.NewReader(data), perm)
}

// WriteFrom is WriteFile for bytes that src writes into the file.
func (w Writer) WriteFrom(path string, src io.WriterTo, perm fs.FileMode) error {
	return w.write(path, src, perm, PublishFile)
}

// WriteNew is WriteFrom that never replaces: when path exists, it is left alone and the error is fs.ErrExist.
func (w Writer) WriteNew(path string, src io.WriterTo, perm fs.FileMode) error {
	return w.write(path, src, perm, PublishNewFile)
}

// Temp makes a temporary file with a new name. The caller publishes or removes it.
func (w Writer) Temp(path string, perm fs.FileMode) (File, error) {
	dir := w.Tmp
	if dir == "" {
		dir = filepath.Dir(path)
	}
	var r [8]byte
	rand.Read(r[:])
	return w.FS.OpenFile(filepath.Join(dir, TempPrefix+hex.EncodeToString(r[:])), os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
}

func (w Writer) write(path string, src io.WriterTo, perm fs.FileMode, publish func(FS, string, string) error) (err error) {
	f, err := w.Temp(path, perm)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			// The temporary file is nobody's; a failure to remove it is swept up later and changes nothing here.
			_ = w.FS.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	_, err = src.WriteTo(f)
	if err == nil {
		err = f.Datasync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return publish(w.FS, f.Name(), path)
}

// WriteFile publishes data at path (Writer.WriteFile with the temporary file beside it).
func WriteFile(fsys FS, path string, data []byte, perm fs.FileMode) error {
	return Writer{FS: fsys}.WriteFile(path, data, perm)
}

// WriteFrom publishes what src writes at path (Writer.WriteFrom with the temporary file beside it).
func WriteFrom(fsys FS, path string, src io.WriterTo, perm fs.FileMode) error {
	return Writer{FS: fsys}.WriteFrom(path, src, perm)
}

// PublishFile renames tmp, whose bytes are already synced, to path and syncs path's directory. After an error from
// the sync the file is in place but may be lost by a power cut.
func PublishFile(fsys FS, tmp, path string) error {
	if err := fsys.Rename(tmp, path); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}

// PublishNewFile is PublishFile that never replaces: when path exists, tmp is removed and the error is fs.ErrExist.
func PublishNewFile(fsys FS, tmp, path string) error {
	if err := fsys.Link(tmp, path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			_ = fsys.Remove(tmp)
		}
		return err
	}
	if err := fsys.Remove(tmp); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}

// MkdirAll makes path and its missing parents and returns once they are durable.
func MkdirAll(fsys FS, path string, perm fs.FileMode) error {
	path = filepath.Clean(path)
	if st, err := fsys.Stat(path); err == nil {
		if st.IsDir() {
			return nil
		}
		return &fs.PathError{Op: "mkdir", Path: path, Err: errNotDir}
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := MkdirAll(fsys, parent, perm); err != nil {
			return err
		}
	}
	if err := fsys.Mkdir(path, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(parent)
}

// ReadFile reads all of a file.
func ReadFile(fsys FS, path string) ([]byte, error) {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
