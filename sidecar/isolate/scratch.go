package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// scratchPrefix begins the names of runs' scratch directories. The name alone proves nothing: the mark does.
const scratchPrefix = "isolate-"

// scratchMark is a file in a scratch directory that says the directory's own identity: a copy, or somebody's directory of
// a similar name, has none that fits.
const scratchMark = "identity"

// scratch is a run's own directory on the host. Its owner holds a lock on it for as long as it lives: whoever gets the
// lock of another may remove that.
type scratch struct {
	dir  string
	lock *os.File
}

// newScratch makes one in parent, readable by its owner only, after removing what runs left whose caller was killed.
func newScratch(parent string) (scratch, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return scratch{}, err
	}
	sweepScratch(parent)
	for range 10 {
		dir, err := os.MkdirTemp(parent, scratchPrefix)
		if err != nil {
			return scratch{}, err
		}
		lock, err := lockScratch(dir)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) { // swept before it was locked
			continue
		}
		if err != nil {
			os.Remove(dir)
			return scratch{}, err
		}
		s := scratch{dir, lock}
		if err := create(filepath.Join(dir, scratchMark), []byte(identity(lock)), 0o400); err != nil {
			return scratch{}, errors.Join(err, s.remove())
		}
		for _, d := range []string{"root", "upper", "work"} {
			if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
				return scratch{}, errors.Join(err, s.remove())
			}
		}
		return s, nil
	}
	return scratch{}, errors.New("scratch directories disappear as fast as they are made")
}

// lockScratch locks a directory and makes sure that it is still the one of that name.
func lockScratch(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	held, err := f.Stat()
	if err == nil {
		var named os.FileInfo
		if named, err = os.Lstat(dir); err == nil && !os.SameFile(held, named) {
			err = os.ErrNotExist
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (s scratch) remove() error {
	if s.dir == "" {
		return nil
	}
	return errors.Join(os.RemoveAll(s.dir), s.lock.Close())
}

func sweepScratch(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), scratchPrefix) {
			continue
		}
		dir := filepath.Join(parent, e.Name())
		lock, err := lockScratch(dir)
		if err != nil {
			continue
		}
		mark, err := os.ReadFile(filepath.Join(dir, scratchMark))
		if id := identity(lock); err != nil || id == "" || string(mark) != id {
			lock.Close()
			continue
		}
		scratch{dir, lock}.remove()
	}
}

// identity is the text of a directory's mark.
func identity(dir *os.File) string {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return ""
	}
	return fmt.Sprintf("tine scratch directory %d:%d\n", st.Dev, st.Ino)
}

// create writes a new file whose survival of a crash nobody counts on.
func create(name string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
