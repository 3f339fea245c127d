package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gowebpki/jcs"

	"tine/snapshot/content"
	"tine/snapshot/durable"
)

// Source is where contents come from that the store doesn't have yet: a git repository, a registry. What it returns is
// verified by the store against the id, so that a source may be wrong but never believed.
type Source interface {
	// Open gives the content's bytes, or a *content.MissingError if this source doesn't have it. Safe for concurrent use.
	Open(id content.ID) (content.Reader, error)
	Close() error
}

// SourceConfig is one registered source: STORE/sources/<ID>.json. Config says what the kind's opener needs, and is in
// canonical JSON, so that registering one source twice is registering it once.
type SourceConfig struct {
	ID     string          `json:"-"`
	Kind   string          `json:"kind"`
	Config json.RawMessage `json:"config"`
}

var (
	kindsMu     sync.RWMutex
	sourceKinds = map[string]func(config json.RawMessage) (Source, error){}
)

// RegisterSourceKind makes sources of a kind usable: open is called at the first need of each. Packages that implement a
// kind call it in init.
func RegisterSourceKind(kind string, open func(config json.RawMessage) (Source, error)) {
	kindsMu.Lock()
	defer kindsMu.Unlock()
	sourceKinds[kind] = open
}

type sources struct {
	mu     sync.Mutex
	loaded bool
	list   []*source // the one that had the last content first
}

type source struct {
	SourceConfig

	mu     sync.Mutex
	src    Source
	err    error
	tried  time.Time
	closed bool
}

// sourceRetry is how long a source that can't be opened is left alone: a repository that was moved away may come back, but not
// within a command.
const sourceRetry = 2 * time.Second

func (x *source) get() (Source, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.closed:
		return nil, errors.New("the store is closed")
	case x.src != nil || x.err != nil && time.Since(x.tried) < sourceRetry:
		return x.src, x.err
	}
	kindsMu.RLock()
	open := sourceKinds[x.Kind]
	kindsMu.RUnlock()
	x.tried = time.Now()
	if open == nil {
		x.err = fmt.Errorf("source %s: unknown kind %q", x.ID, x.Kind)
		return nil, x.err
	}
	if x.src, x.err = open(x.Config); x.err != nil {
		x.src = nil
	}
	return x.src, x.err
}

// AddSource registers a source durably and returns its id. config is marshalled to JSON.
func (s *Store) AddSource(kind string, config any) (string, error) {
	if err := s.writable(); err != nil {
		return "", err
	}
	raw, err := json.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("source: %w", err)
	}
	data, err := json.Marshal(SourceConfig{Kind: kind, Config: raw})
	if err == nil {
		data, err = jcs.Transform(data)
	}
	if err != nil {
		return "", fmt.Errorf("source: %w", err)
	}
	sum := sha256.Sum256(data)
	id := hex.EncodeToString(sum[:16])
	if _, err := s.mkdir("sources"); err != nil {
		return "", err
	}
	path := s.path("sources", id+".json")
	if had, err := durable.ReadFile(s.fs, path); err != nil || string(had) != string(data) {
		out, err := s.writer()
		if err == nil {
			err = out.WriteFile(path, data, 0o600)
		}
		if err != nil {
			return "", fmt.Errorf("register a source: %w", err)
		}
	}
	return id, s.loadSources()
}

// Sources lists the registered sources.
func (s *Store) Sources() ([]SourceConfig, error) {
	ents, err := s.readDir("sources")
	if err != nil {
		return nil, err
	}
	var list []SourceConfig
	for _, e := range ents {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || strings.HasPrefix(e.Name(), durable.TempPrefix) {
			continue
		}
		data, err := durable.ReadFile(s.fs, s.path("sources", e.Name()))
		if err != nil {
			return nil, err
		}
		c := SourceConfig{ID: id}
		sum := sha256.Sum256(data)
		if err := json.Unmarshal(data, &c); err != nil || hex.EncodeToString(sum[:16]) != id {
			return nil, fmt.Errorf("source %s: the file is damaged", filepath.Join("sources", e.Name()))
		}
		list = append(list, c)
	}
	return list, nil
}

// RemoveSource forgets a source. Contents that only it has are missing from then on.
func (s *Store) RemoveSource(id string) error {
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.fs.Remove(s.path("sources", id+".json")); err != nil {
		return err
	}
	return s.fs.SyncDir(s.path("sources"))
}

// loadSources adds sources that were registered since, by other processes too.
func (s *Store) loadSources() error {
	list, err := s.Sources()
	if err != nil {
		return err
	}
	s.sources.mu.Lock()
	defer s.sources.mu.Unlock()
	s.sources.loaded = true
	for _, c := range list {
		if !slices.ContainsFunc(s.sources.list, func(x *source) bool { return x.ID == c.ID }) {
			s.sources.list = append(s.sources.list, &source{SourceConfig: c})
		}
	}
	return nil
}

// fromSources calls try with a reader of id from each source that has it, until it returns nil: then done is true. Nothing is
// verified yet. Without that, the error is what went wrong with one that has it, or a *SourcesGoneError, or a
// *content.MissingError of a source, or nil if there are none.
// Sources that another process has registered meanwhile are found.
func (s *Store) fromSources(id content.ID, try func(content.Reader) error) (done bool, err error) {
	tried := map[*source]bool{}
	gone := &SourcesGoneError{}
	for round := range 2 {
		s.sources.mu.Lock()
		loaded := s.sources.loaded
		s.sources.mu.Unlock()
		if !loaded || round > 0 {
			if lerr := s.loadSources(); lerr != nil {
				return false, lerr
			}
		}
		s.sources.mu.Lock()
		list := slices.Clone(s.sources.list)
		s.sources.mu.Unlock()
		for i, x := range list {
			if tried[x] {
				continue
			}
			tried[x] = true
			src, gerr := x.get()
			if gerr != nil {
				gone.Sources = append(gone.Sources, GoneSource{x.ID, gerr})
				continue
			}
			xerr := tryOne(src, id, try)
			if xerr == nil {
				if i > 0 {
					s.preferSource(x)
				}
				return true, nil
			}
			var missing *content.MissingError
			if err == nil || !errors.As(xerr, &missing) { // what went wrong says more than "not here"
				err = xerr
			}
		}
	}
	var missing *content.MissingError
	if len(gone.Sources) > 0 && (err == nil || errors.As(err, &missing)) {
		err = gone
	}
	return false, err
}

func tryOne(src Source, id content.ID, try func(content.Reader) error) error {
	r, err := src.Open(id)
	if err != nil {
		return err
	}
	defer r.Close()
	return try(r)
}

// preferSource moves x to the front: the next content will probably come from the same repository.
func (s *Store) preferSource(x *source) {
	s.sources.mu.Lock()
	defer s.sources.mu.Unlock()
	if i := slices.Index(s.sources.list, x); i > 0 {
		copy(s.sources.list[1:], s.sources.list[:i])
		s.sources.list[0] = x
	}
}

func (g *sources) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, x := range g.list {
		x.mu.Lock()
		x.closed = true
		if x.src != nil {
			errs = append(errs, x.src.Close())
		}
		x.mu.Unlock()
	}
	g.list = nil
	return errors.Join(errs...)
}
