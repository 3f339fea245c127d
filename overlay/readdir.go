package overlay

import (
	"golang.org/x/sys/unix"

	"tine/snapshot/image"
)

// Dirent is one name in a directory.
type Dirent = image.Dirent

// listBatch entries are copied under the lock at a time: a listing holds no lock while its reader works.
const listBatch = 128

// ReadDir yields the entries of dir with Pos > after, by ascending Pos, until yield returns false; "." and ".." are
// not among them. Positions stay valid while the fork lives, also over restarts. attr gives the entry's attributes;
// it may be called during the yield, and returns false if the inode has gone meanwhile.
func (f *Fork) ReadDir(dir, after uint64, yield func(d Dirent, attr func() (Attr, bool)) bool) error {
	var ino uint64
	attr := func() (Attr, bool) {
		a, err := f.Getattr(ino)
		return a, err == nil
	}
	var buf [listBatch]Dirent
	for {
		f.mu.RLock()
		batch := buf[:0]
		err := f.w.s.readDir(dir, after, func(d Dirent) bool {
			batch = append(batch, d)
			return len(batch) < listBatch
		})
		f.mu.RUnlock()
		if err != nil {
			return err
		}
		for i := range batch {
			ino = batch[i].Ino
			if !yield(batch[i], attr) {
				return nil
			}
		}
		if len(batch) < listBatch {
			return nil
		}
		after = batch[len(batch)-1].Pos
	}
}

// readDir merges the base's entries, as far as they still stand, with the fork's.
func (s *state) readDir(dir, after uint64, yield func(Dirent) bool) error {
	n, ok, err := s.changed(dir)
	if err != nil {
		return err
	}
	if ok && !n.isDir() {
		return unix.ENOTDIR
	}
	if ok && n.flags&nodeBase == 0 {
		s.readNew(dir, after, yield)
		return nil
	}
	touched := ok && n.dir != nil && n.dir.changed > 0
	stopped := false
	if after < image.NewPos {
		var key dirent
		key.dir = dir
		err := s.base.ReadDir(dir, after, func(b Dirent) bool {
			if touched {
				key.name = b.Name
				if d, ok := s.names.Get(&key); ok {
					if d.ino == 0 || d.pos != b.Pos {
						return true // gone, or listed further on
					}
					b.Ino, b.Type = d.ino, d.typ
				}
			}
			stopped = !yield(b)
			return !stopped
		})
		if err != nil {
			return baseErr("listing", dir, err)
		}
	}
	if !stopped && touched {
		s.readNew(dir, after, yield)
	}
	return nil
}

// readNew yields the entries that have positions of their own.
func (s *state) readNew(dir, after uint64, yield func(Dirent) bool) {
	from := &dirent{dir: dir, pos: max(after+1, image.NewPos)}
	s.order.Ascend(from, func(d *dirent) bool {
		if d.dir != dir {
			return false
		}
		return yield(Dirent{Name: d.name, Ino: d.ino, Pos: d.pos, Type: d.typ})
	})
}
