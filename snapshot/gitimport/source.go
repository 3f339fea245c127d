package gitimport

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"tine/snapshot"
	"tine/snapshot/content"
	"tine/snapshot/gitimport/objects"
)

// sourceKind is the kind under which repositories are registered with a store as sources of contents.
const sourceKind = "git"

func init() {
	snapshot.RegisterSourceKind(sourceKind, openSource)
}

// SourceConfig is what a store remembers of a repository. Work trees come and go; the object directories are what counts.
type SourceConfig struct {
	// CommonDir is an absolute path.
	CommonDir    string `json:"common_dir"`
	ObjectFormat string `json:"object_format"`
}

func (r *Repository) sourceConfig() SourceConfig {
	return SourceConfig{CommonDir: r.CommonDir, ObjectFormat: content.SHA1.String()}
}

// ParseSource reads the configuration of a registered source of the kind "git", for whoever must hide (S13) or tell where
// a store's contents come from.
func ParseSource(c snapshot.SourceConfig) (cfg SourceConfig, ok bool, err error) {
	if c.Kind != sourceKind {
		return cfg, false, nil
	}
	if err := json.Unmarshal(c.Config, &cfg); err != nil {
		return cfg, true, fmt.Errorf("source %s: %w", c.ID, err)
	}
	return cfg, true, nil
}

// source gives blobs of one repository. Alternates are looked up when it is opened, since they may have been added, or
// moved, after the import.
type source struct{ db *objects.DB }

func openSource(raw json.RawMessage) (snapshot.Source, error) {
	var cfg SourceConfig
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return nil, err
	}
	if cfg.ObjectFormat != content.SHA1.String() {
		return nil, &FormatError{cfg.CommonDir, "object format " + cfg.ObjectFormat}
	}
	repo, err := Locate(cfg.CommonDir)
	if err != nil {
		return nil, err
	}
	if repo.CommonDir != cfg.CommonDir {
		// A repository around the place where the right one was.
		return nil, &NotRepositoryError{cfg.CommonDir, "it is gone"}
	}
	return &source{repo.Objects()}, nil
}

func (s *source) Close() error { return s.db.Close() }

// Open reads a blob whole: into memory up to content.MaxSmall, else into a temporary file.
func (s *source) Open(id content.ID) (content.Reader, error) {
	if id.Algo != content.GitSHA1 {
		return nil, &content.MissingError{ID: id}
	}
	oid := objects.ID(id.Bytes())
	size, err := s.db.Size(oid)
	if err != nil {
		return nil, contentError(id, err)
	}
	if size <= content.MaxSmall {
		typ, data, err := s.db.Read(oid)
		if err != nil {
			return nil, contentError(id, err)
		}
		if typ != objects.Blob {
			return nil, &content.CorruptError{ID: id, Why: "git has a " + typ.String()}
		}
		return content.FromBytes(data), nil
	}
	data := newSpool(os.TempDir())
	typ, _, err := s.db.Stream(oid, data)
	if err == nil {
		err = data.flush()
	}
	if err == nil && typ != objects.Blob {
		err = &content.CorruptError{ID: id, Why: "git has a " + typ.String()}
	}
	if err != nil {
		data.Close()
		return nil, contentError(id, err)
	}
	return data, nil
}

func contentError(id content.ID, err error) error {
	var c *objects.CorruptError
	switch {
	case errors.Is(err, objects.ErrNotFound):
		return &content.MissingError{ID: id, Cause: err}
	case errors.As(err, &c):
		return &content.CorruptError{ID: id, Why: err.Error()}
	}
	return err
}
