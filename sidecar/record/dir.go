package record

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

	"tine/snapshot/durable"
)

// ErrNotFound is returned for a run without a record.
var ErrNotFound = errors.New("no such run")

// Dir is a store's run records.
type Dir struct {
	FS   durable.FS
	Path string // STORE/runs; made by the first run
	Tmp  string // where unfinished files lie, on the same file system; "" is beside their destination
}

// NewID makes an id for a run.
func NewID() string {
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// Write makes r the run's record and returns once it is durable.
func (d Dir) Write(r *Run) error {
	r.Schema = Schema
	data, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = durable.MkdirAll(d.FS, d.Path, 0o700)
	}
	if err == nil {
		err = durable.Writer{FS: d.FS, Tmp: d.Tmp}.WriteFile(d.file(r.ID), append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("record of run %s: %w", r.ID, err)
	}
	return nil
}

// Get reads a record by the run's full id.
func (d Dir) Get(id string) (*Run, error) {
	data, err := durable.ReadFile(d.FS, d.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("run %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	var r Run
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("run %s: its record is damaged: %w", id, err)
	}
	if r.Schema != Schema || r.ID != id {
		return nil, fmt.Errorf("run %s: its record is a %q, this tine reads %q", id, r.Schema, Schema)
	}
	if (r.State == Running || r.State == Starting) && !r.Host.Alive() {
		r.State = Lost
	}
	return &r, nil
}

// List gives all records, the newest first, and the errors of those that can't be read.
func (d Dir) List() ([]*Run, error) {
	entries, err := d.FS.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("run records: %w", err)
	}
	var runs []*Run
	var bad []error
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || strings.HasPrefix(id, durable.TempPrefix) {
			continue
		}
		r, err := d.Get(id)
		switch {
		case errors.Is(err, ErrNotFound): // removed since the directory was read
		case err != nil:
			bad = append(bad, err)
		default:
			runs = append(runs, r)
		}
	}
	sort.SliceStable(runs, func(i, j int) bool { return runs[i].Started.After(runs[j].Started) })
	return runs, errors.Join(bad...)
}

// Remove deletes a record and returns once that is durable.
func (d Dir) Remove(id string) error {
	err := d.FS.Remove(d.file(id))
	if err == nil {
		err = d.FS.SyncDir(d.Path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", id, err)
	}
	return nil
}

func (d Dir) file(id string) string { return filepath.Join(d.Path, id+".json") }
