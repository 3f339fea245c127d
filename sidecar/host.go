package sidecar

import (
	"errors"
	"path/filepath"
	"sync"

	"tine/fs"
	"tine/overlay/registry"
	"tine/sidecar/record"
	"tine/snapshot"
	"tine/snapshot/durable"
	"tine/snapshot/pin"
)

// Config says where a Host works.
type Config struct {
	// Store is the store's directory.
	Store string
	// Create makes the store if there is none. Without it, a store that doesn't exist is one with nothing in it: a
	// command that only looks creates nothing.
	Create bool
}

// Host is one process's access to a store. Safe for concurrent use.
type Host struct {
	dir    string
	create bool
	runs   record.Dir
	pins   pin.Dir
	forks  *registry.Registry
	store  *snapshot.Store // nil while there is none; set by Open and need

	mu      sync.Mutex
	files   *fs.Server     // nil before the first mount; guarded by mu
	control *controlServer // nil before the first mount; guarded by mu
}

// Open opens a store. One that is to be created is created by the first call that writes, once that knows that it has
// something to write: a refused import leaves nothing.
func Open(c Config) (*Host, error) {
	dir, err := filepath.Abs(c.Store)
	if err != nil {
		return nil, err
	}
	h := &Host{dir: dir, create: c.Create}
	h.runs = record.Dir{FS: durable.OS, Path: h.path("runs"), Tmp: h.path("tmp")}
	h.pins = pin.Dir{FS: durable.OS, Path: h.path("pins"), Tmp: h.path("tmp")}
	h.forks = registry.Open(durable.OS, h.path("forks.log"))
	h.store, err = snapshot.Open(dir, snapshot.Options{})
	if err != nil && !errors.Is(err, snapshot.ErrNoStore) {
		return nil, err
	}
	return h, nil
}

// Close ends what this process serves and closes the store. Forks must be closed before.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	if h.control != nil {
		h.control.close()
		h.control = nil
	}
	if h.files != nil {
		err = h.files.Close()
		h.files = nil
	}
	if h.store != nil {
		err = errors.Join(err, h.store.Close())
		h.store = nil
	}
	return err
}

// Dir is the store's directory, absolute.
func (h *Host) Dir() string { return h.dir }

func (h *Host) path(elem ...string) string {
	return filepath.Join(append([]string{h.dir}, elem...)...)
}

// need makes sure that there is a store to write to, and makes it if that was asked for. Commands call it before they
// do anything at once.
func (h *Host) need() error {
	if h.store != nil {
		return nil
	}
	store, err := snapshot.Open(h.dir, snapshot.Options{Create: h.create})
	if err != nil {
		return err
	}
	h.store = store
	return nil
}

// makeDir makes a directory of the store.
func (h *Host) makeDir(name string) error {
	return durable.MkdirAll(h.store.FS(), h.path(name), 0o700)
}
