package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strings"
	"sync"

	"tine/snapshot/content"
	"tine/snapshot/image"
)

// Checkpoint finds a checkpoint by its id, by a name, or by a unique prefix of its id (at least 4 digits), in this order.
func (s *Store) Checkpoint(what string) (Checkpoint, error) {
	id, err := s.resolve(what)
	if err != nil {
		return Checkpoint{}, err
	}
	c, err := s.load(id)
	if err != nil {
		return Checkpoint{}, err
	}
	return *c, nil
}

func (s *Store) resolve(what string) (string, error) {
	if isID(what) {
		return what, nil
	}
	if checkNamed(what) == nil {
		id, err := s.named(what)
		if !errors.Is(err, ErrNotFound) {
			return id, err
		}
	}
	if len(what) < minPrefix || !isHex(what) {
		return "", fmt.Errorf("checkpoint %q: %w", what, ErrNotFound)
	}
	ids, err := s.ids()
	if err != nil {
		return "", err
	}
	var found []string
	for _, id := range ids {
		if strings.HasPrefix(id, what) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("checkpoint %q: %w", what, ErrNotFound)
	case 1:
		return found[0], nil
	}
	return "", &AmbiguousError{Prefix: what, Matches: found}
}

func (s *Store) ids() ([]string, error) {
	ents, err := s.readDir("checkpoints")
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range ents {
		if id, ok := strings.CutSuffix(e.Name(), ".json"); ok && isID(id) {
			ids = append(ids, id)
		}
	}
	sort.Strings(ids)
	return ids, nil
}

// List returns all checkpoints, by id. Damaged ones are left out; their errors are joined.
func (s *Store) List() ([]Checkpoint, error) {
	ids, err := s.ids()
	if err != nil {
		return nil, err
	}
	var list []Checkpoint
	var errs []error
	for _, id := range ids {
		c, err := s.load(id)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			errs = append(errs, err)
		default:
			list = append(list, *c)
		}
	}
	return list, errors.Join(errs...)
}

// Remove takes a checkpoint out of the store: it can't be found from then on. Its image and contents go by gc. Names are
// removed by Untag; one that still stands for it is refused.
func (s *Store) Remove(id string) error {
	if err := s.writable(); err != nil {
		return err
	}
	names, err := s.Names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if n.Checkpoint == id {
			return &NameTakenError{Name: n.Name, Checkpoint: id}
		}
	}
	if err := s.fs.Remove(s.manifestPath(id)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("checkpoint %s: %w", short(id), ErrNotFound)
		}
		return err
	}
	if err := s.fs.Remove(s.provenancePath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.images.drop(id)
	return s.fs.SyncDir(s.path("checkpoints"))
}

// imageLimit bounds the images that are kept open for their next use. One that is left out goes on serving those who have
// it, and closes itself when nobody has.
const imageLimit = 128

// imageCache holds open images: a mapping each, shared by all forks of a checkpoint.
type imageCache struct {
	mu sync.Mutex
	m  map[string]*image.Image // by checkpoint id; by id + ".img" those of bases
}

func (c *imageCache) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, id)
}

func (c *imageCache) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, m := range c.m {
		errs = append(errs, m.Close())
	}
	c.m = nil
	return errors.Join(errs...)
}

// Tree opens a checkpoint's image (a full id). The image is shared: the store closes it.
func (s *Store) Tree(id string) (*image.Image, error) {
	s.images.mu.Lock()
	m := s.images.m[id]
	s.images.mu.Unlock()
	if m != nil {
		return m, nil
	}
	c, err := s.load(id)
	if err != nil {
		return nil, err
	}
	var base *image.Image
	if c.Base != "" {
		if base, err = s.openImage(c.Base, "", nil, c.Base); err != nil {
			return nil, fmt.Errorf("checkpoint %s: its base image: %w", short(id), err)
		}
	}
	if m, err = s.openImage(id, c.Base, base, id); err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", short(id), err)
	}
	return m, nil
}

// openImage opens and caches an image and checks that it is the one of the checkpoint.
func (s *Store) openImage(id, base string, over *image.Image, want string) (*image.Image, error) {
	key := id
	if base == "" {
		key = imageName(id, "")
	}
	s.images.mu.Lock()
	defer s.images.mu.Unlock()
	if m := s.images.m[key]; m != nil {
		return m, nil
	}
	m, err := image.Open(s.fs, s.imagePath(id, base), over)
	if err != nil {
		return nil, err
	}
	if got := m.Identity().CheckpointID(); got != want {
		m.Close()
		return nil, &image.CorruptError{Path: s.imagePath(id, base), Why: "it is the image of checkpoint " + got}
	}
	if s.images.m == nil {
		s.images.m = map[string]*image.Image{}
	}
	for old := range s.images.m { // any will do
		if len(s.images.m) < imageLimit {
			break
		}
		delete(s.images.m, old)
	}
	s.images.m[key] = m
	if base == "" {
		s.images.m[id] = m
	}
	return m, nil
}

// BaseImage returns what a delta for a tree derived from checkpoint id is made over: an image in the base form, and the
// checkpoint whose tree that is (Draft.Base). It is id itself or the base of id's own delta.
func (s *Store) BaseImage(id string) (*image.Image, string, error) {
	c, err := s.load(id)
	if err != nil {
		return nil, "", err
	}
	base := c.ID
	if c.Base != "" {
		base = c.Base
	}
	m, err := s.openImage(base, "", nil, base)
	return m, base, err
}

// files is a checkpoint with its contents.
type files struct {
	*image.Image
	contents content.Opener
}

// Files opens a checkpoint (a full id) with its contents.
func (s *Store) Files(id string) (image.Files, error) {
	m, err := s.Tree(id)
	if err != nil {
		return nil, err
	}
	c, err := s.load(id)
	if err != nil {
		return nil, err
	}
	return files{m, s.Contents(*c)}, nil
}

// OpenFile implements image.Files.
func (f files) OpenFile(n image.Node) (content.Reader, error) {
	r, err := f.contents.Open(n.Content)
	if err != nil {
		return nil, err
	}
	if r.Size() != n.Size {
		defer r.Close()
		return nil, &content.CorruptError{ID: n.Content, Why: fmt.Sprintf("inode %d has %d bytes, its content %d", n.Ino, n.Size, r.Size())}
	}
	return r, nil
}
