package sidecar

import (
	"errors"
	"path/filepath"
	"sync"

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

	mu    sync.Mutex
	store *snapshot.Store // nil while there is none
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
	h.store, err = snapshot.Open(dir, snapshot.Options{})
	if err != nil && !errors.Is(err, snapshot.ErrNoStore) {
		return nil, err
	}
	return h, nil
}

// Close closes the store.
func (h *Host) Close() error {
	if h.store == nil {
		return nil
	}
	return h.store.Close()
}

// Dir is the store's directory, absolute.
func (h *Host) Dir() string { return h.dir }

func (h *Host) path(elem ...string) string {
	return filepath.Join(append([]string{h.dir}, elem...)...)
}

// need makes sure that there is a store to write to, and makes it if that was asked for.
func (h *Host) need() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.store != nil {
		return nil
	}
	store, err := snapshot.Open(h.dir, snapshot.Options{Create: h.create})
	if err != nil {
		return err
	}
	h.store = store
	return durable.MkdirAll(store.FS(), h.path("tmp"), 0o700)
}
