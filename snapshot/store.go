package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"tine/snapshot/content"
	"tine/snapshot/durable"
)

// Options are how a store is opened.
type Options struct {
	// Create makes the store (and its parent directories) if there is none.
	Create bool
	// ReadOnly never writes: contents from sources are not kept.
	ReadOnly bool
	// FS is what everything durable goes through; nil is the operating system's.
	FS durable.FS
}

// Store is an open store. Its methods are safe for concurrent use, and several processes may use one store.
type Store struct {
	// Immutable.
	dir      string
	fs       durable.FS
	format   formatInfo
	readOnly bool

	segs    segments
	out     segWriter
	holds   holds
	sources sources
	hot     hotSet
	sums    sumSet
	flight  singleflight.Group // hydration by content id
	images  imageCache

	failed atomic.Pointer[error] // a failed sync: no more writes (a sync that is tried again proves nothing)
	owed   atomic.Bool           // something was Put since the last Sync, not only hydrated

	dirsMu sync.Mutex
	dirs   map[string]bool // directories that are known to exist
	unsync map[string]bool // directories with names that are not durable yet; Sync makes them so
}

// Open opens the store in dir. It reads the format file only and creates nothing unless Options.Create is set.
func Open(dir string, opt Options) (*Store, error) {
	if opt.FS == nil {
		opt.FS = durable.OS
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	info, err := loadFormat(opt.FS, dir)
	if errors.Is(err, ErrNoStore) && opt.Create && !opt.ReadOnly {
		info, err = createFormat(opt.FS, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{dir: dir, fs: opt.FS, format: info, readOnly: opt.ReadOnly, dirs: map[string]bool{}, unsync: map[string]bool{}}
	s.segs.init(s)
	s.out.store = s
	s.hot.limit = hotLimit
	return s, nil
}

// leaveTail (32 MiB) bounds what Close leaves behind a segment's index. Contents that were only hydrated can be fetched again:
// they are not worth a sync at the end of a short command, and the segment's next writer finds them.
const leaveTail = 32 << 20

// Close syncs what was Put and closes all files. Readers that are still open fail afterwards.
func (s *Store) Close() error {
	var err error
	if s.writable() == nil && (s.owed.Load() || s.out.tail() > leaveTail) {
		err = s.Sync()
	}
	return errors.Join(err, s.out.close(), s.sources.close(), s.images.close(), s.segs.close())
}

// Dir is the store's directory, an absolute path.
func (s *Store) Dir() string { return s.dir }

// ID is the store's identity, 32 random hex digits made with it.
func (s *Store) ID() string { return s.format.id }

// FS is what the store writes through.
func (s *Store) FS() durable.FS { return s.fs }

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// writable is nil while the store may be written.
func (s *Store) writable() error {
	if s.readOnly {
		return ErrReadOnly
	}
	if err := s.failed.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrReadOnly, *err)
	}
	return nil
}

// fail makes the store read-only until it is opened again.
func (s *Store) fail(err error) error {
	s.failed.CompareAndSwap(nil, &err)
	return err
}

// mkdir makes a directory below the store, durable at once, and returns its path.
func (s *Store) mkdir(elem ...string) (string, error) {
	p := s.path(elem...)
	s.dirsMu.Lock()
	defer s.dirsMu.Unlock()
	if s.dirs[p] {
		return p, nil
	}
	if err := durable.MkdirAll(s.fs, p, 0o700); err != nil {
		return "", err
	}
	s.dirs[p] = true
	return p, nil
}

// writer publishes files of the store, through STORE/tmp.
func (s *Store) writer() (durable.Writer, error) {
	tmp, err := s.mkdir("tmp")
	return durable.Writer{FS: s.fs, Tmp: tmp}, err
}

// readDir is ReadDir of a directory that may not exist yet.
func (s *Store) readDir(elem ...string) ([]fs.DirEntry, error) {
	ents, err := s.fs.ReadDir(s.path(elem...))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return ents, err
}

// Has reports whether the content is in the store itself (not only in a source).
func (s *Store) Has(id content.ID) bool {
	if id.Algo.IsLoose() {
		id = id.Blob()
	}
	if isEmpty(id) {
		return true
	}
	found := false
	s.segs.find(contentKey(id), func(location) bool { found = true; return false })
	return found
}

var emptySHA1, emptySHA256 = content.BlobID(nil, content.SHA1), content.BlobID(nil, content.SHA256)

// isEmpty: the empty content is known without being stored.
func isEmpty(id content.ID) bool { return id == emptySHA1 || id == emptySHA256 }
