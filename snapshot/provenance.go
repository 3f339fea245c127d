package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"tine/snapshot/durable"
)

// Provenance tells how a checkpoint came to be, once for each time that it did. It is outside the id (CONTRACTS "Terms").
type Provenance struct {
	At     time.Time         `json:"at"`
	Kind   string            `json:"kind"`             // "git", "dir", "seal", ...
	Source string            `json:"source,omitempty"` // the repository, directory or fork
	Detail map[string]string `json:"detail,omitempty"` // revision, options, digests: what the kind finds worth telling
}

func (s *Store) provenancePath(id string) string {
	return s.path("checkpoints", id+".provenance.jsonl")
}

// AddProvenance appends a record to the checkpoint's provenance and makes it durable. The zero record is not written. A
// time that isn't set is now.
func (s *Store) AddProvenance(id string, p Provenance) error {
	if p.Kind == "" {
		return nil
	}
	if err := s.writable(); err != nil {
		return err
	}
	if p.At.IsZero() {
		p.At = time.Now()
	}
	p.At = p.At.UTC().Round(time.Microsecond)
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if _, err := s.mkdir("checkpoints"); err != nil {
		return err
	}
	path := s.provenancePath(id)
	_, statErr := s.fs.Stat(path)
	f, err := s.fs.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	// One write at the end of the file, so that two processes' lines don't mix. A line that a crash has cut short is
	// skipped by readers; the line break in front keeps the next one whole.
	if _, err = f.Write(append(append([]byte{'\n'}, line...), '\n')); err == nil {
		err = f.Datasync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil && errors.Is(statErr, fs.ErrNotExist) {
		err = s.fs.SyncDir(s.path("checkpoints"))
	}
	if err != nil {
		return fmt.Errorf("record where checkpoint %s comes from: %w", short(id), err)
	}
	return nil
}

// Provenance returns the checkpoint's provenance records, oldest first.
func (s *Store) Provenance(id string) ([]Provenance, error) {
	data, err := durable.ReadFile(s.fs, s.provenancePath(id))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	var list []Provenance
	for line := range bytes.Lines(data) {
		var p Provenance
		if json.Unmarshal(line, &p) == nil && p.Kind != "" {
			list = append(list, p)
		}
	}
	return list, nil
}
