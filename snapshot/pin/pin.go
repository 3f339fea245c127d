// Package pin keeps the durable roots of garbage collection: who needs which checkpoint, and how sure that is.
//
// A pin is one file, STORE/pins/<id>.json, and it is durable before any I/O that it protects (G1). Its life:
//
//	intended -> confirmed -> released (the file goes)
//	        \-> ambiguous: the outcome is unknown; it keeps what it protects until a host resolves it
//
// The package knows checkpoints by id only and reads none.
package pin

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"tine/snapshot/durable"
)

// State is how far a pin has come.
type State string

const (
	Intended  State = "intended"
	Confirmed State = "confirmed"
	Ambiguous State = "ambiguous"
)

// ErrNotFound is returned for a pin that doesn't exist, or no longer.
var ErrNotFound = errors.New("no such pin")

const schema = "tine.pin/v1"

// Pin protects one checkpoint from garbage collection.
type Pin struct {
	Schema     string     `json:"schema"`
	ID         string     `json:"pin"` // 32 hex digits
	Checkpoint string     `json:"checkpoint"`
	Owner      string     `json:"owner"` // "run:<id>", or what a host calls itself
	State      State      `json:"state"`
	Created    time.Time  `json:"created"`
	Until      *time.Time `json:"until"` // nil: until it is released
}

// Dir is a store's pins.
type Dir struct {
	FS   durable.FS
	Path string // STORE/pins; made by the first pin
	Tmp  string // where unfinished files lie, on the same file system; "" is beside their destination
}

// Intend records that owner is about to need checkpoint, and returns once that is durable.
func (d Dir) Intend(checkpoint, owner string, until *time.Time) (Pin, error) {
	var id [16]byte
	rand.Read(id[:])
	p := Pin{Schema: schema, ID: hex.EncodeToString(id[:]), Checkpoint: checkpoint, Owner: owner, State: Intended,
		Created: time.Now().UTC(), Until: until}
	if err := durable.MkdirAll(d.FS, d.Path, 0o700); err != nil {
		return Pin{}, fmt.Errorf("pin %s: %w", checkpoint, err)
	}
	return p, d.write(p)
}

// Confirm notes that the checkpoint exists and has been read back under the pin.
func (d Dir) Confirm(id string) error { return d.set(id, Confirmed) }

// Doubt notes that nobody knows whether what the pin protects came to be.
func (d Dir) Doubt(id string) error { return d.set(id, Ambiguous) }

func (d Dir) set(id string, to State) error {
	p, err := d.Get(id)
	if err != nil {
		return err
	}
	p.State = to
	return d.write(p)
}

// Release ends a pin and returns once that is durable. Releasing one that is gone is no error.
func (d Dir) Release(id string) error {
	err := d.FS.Remove(d.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = d.FS.SyncDir(d.Path)
	}
	if err != nil {
		return fmt.Errorf("release pin %s: %w", id, err)
	}
	return nil
}

// Get reads one pin by its full id.
func (d Dir) Get(id string) (Pin, error) {
	data, err := durable.ReadFile(d.FS, d.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return Pin{}, fmt.Errorf("pin %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return Pin{}, fmt.Errorf("pin %s: %w", id, err)
	}
	var p Pin
	if err := json.Unmarshal(data, &p); err != nil {
		return Pin{}, fmt.Errorf("pin %s: %w", id, err)
	}
	if p.Schema != schema || p.ID != id {
		return Pin{}, fmt.Errorf("pin %s: not a %s document for this id", id, schema)
	}
	return p, nil
}

// List gives all pins, oldest first. A pin that can't be read is an error: collecting without it would be wrong.
func (d Dir) List() ([]Pin, error) {
	entries, err := d.FS.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pins: %w", err)
	}
	var pins []Pin
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || strings.HasPrefix(id, durable.TempPrefix) {
			continue
		}
		p, err := d.Get(id)
		if errors.Is(err, ErrNotFound) {
			continue // released since the directory was read
		}
		if err != nil {
			return nil, err
		}
		pins = append(pins, p)
	}
	sort.SliceStable(pins, func(i, j int) bool { return pins[i].Created.Before(pins[j].Created) })
	return pins, nil
}

func (d Dir) file(id string) string { return filepath.Join(d.Path, id+".json") }

func (d Dir) write(p Pin) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err == nil {
		err = durable.Writer{FS: d.FS, Tmp: d.Tmp}.WriteFile(d.file(p.ID), append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("pin %s: %w", p.ID, err)
	}
	return nil
}
