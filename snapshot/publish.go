package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"tine/snapshot/durable"
	"tine/snapshot/image"
)

// Draft is a checkpoint that is about to be published.
type Draft struct {
	// Image is the encoded tree, in the base form or as a delta over Base's image.
	Image *image.Encoded
	// Base is the checkpoint that a delta is over (one with an image in the base form: BaseImage); "" in the base form.
	Base string

	// As in Checkpoint. Without TreeID it is computed when it is asked for.
	TreeID, Commit string
	Files, Bytes   int64
	Parent         string
	Sources        []string

	// Provenance is appended to the checkpoint's records, also if the checkpoint is there already.
	Provenance Provenance
}

// Publish makes a checkpoint of a draft whose contents were stored under the caller's shared hold. It syncs the contents,
// writes the image, and then the manifest, whose appearance by rename is the publication: a crash before leaves nothing that
// anybody sees. Publishing a tree that is there already returns what is there; a failed publication can be tried again.
func (s *Store) Publish(ctx context.Context, d Draft) (Checkpoint, error) {
	c, err := s.publish(ctx, d)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("publish a checkpoint: %w", err)
	}
	return *c, nil
}

func (s *Store) publish(ctx context.Context, d Draft) (*Checkpoint, error) {
	if err := s.requireHold(); err != nil {
		return nil, err
	}
	if err := s.Sync(); err != nil {
		return nil, err
	}
	identity := d.Image.Identity()
	id := identity.CheckpointID()
	if had, err := s.load(id); err == nil && s.hasImages(had) {
		return had, s.AddProvenance(id, d.Provenance)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &Checkpoint{
		ID: id, Identity: identity, TreeID: d.TreeID, Commit: d.Commit, Files: d.Files, Bytes: d.Bytes,
		Parent: d.Parent, Base: d.Base, Sources: d.Sources,
	}
	if _, err := c.encode(); err != nil {
		return nil, err
	}
	if _, err := s.mkdir("images"); err != nil {
		return nil, err
	}
	if _, err := s.mkdir("checkpoints"); err != nil {
		return nil, err
	}
	out, err := s.writer()
	if err != nil {
		return nil, err
	}
	if err := s.writeImage(out, c, d.Image); err != nil {
		return nil, err
	}
	data, err := c.encode()
	if err != nil {
		return nil, err
	}
	if err := s.AddProvenance(id, d.Provenance); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := out.WriteFile(s.manifestPath(id), data, 0o444); err != nil {
		return nil, err
	}
	return c, nil
}

// flattenAt: a delta with more than one change for this many nodes and names of its base is replaced by an image of its own.
const flattenAt = 8

// writeImage writes the draft's image, or the flattened one if it is a large delta; then c.Base is "".
func (s *Store) writeImage(out durable.Writer, c *Checkpoint, enc *image.Encoded) error {
	path := s.imagePath(c.ID, c.Base)
	if err := out.WriteFrom(path, enc, 0o444); err != nil || c.Base == "" {
		return err
	}
	base, err := s.openImage(c.Base, "", nil, c.Base)
	if err != nil {
		return fmt.Errorf("the image of the delta's base: %w", err)
	}
	m, err := image.Open(s.fs, path, base)
	if err != nil {
		return err
	}
	defer m.Close()
	if m.Changes()*flattenAt <= base.NumNodes()+base.NumNames() {
		return nil
	}
	b, err := m.Builder()
	if err != nil {
		return fmt.Errorf("flatten: %w", err)
	}
	flat, err := b.Encode()
	if err != nil {
		return fmt.Errorf("flatten: %w", err)
	}
	if got := flat.Identity(); got != c.Identity {
		return fmt.Errorf("flatten: checkpoint %s became %s", short(c.ID), short(got.CheckpointID()))
	}
	if err := out.WriteFrom(s.imagePath(c.ID, ""), flat, 0o444); err != nil {
		return err
	}
	c.Base = ""
	_ = s.fs.Remove(path) // no manifest names it; gc would find it
	return nil
}

func (s *Store) imagePath(id, base string) string { return s.path("images", imageName(id, base)) }
func (s *Store) manifestPath(id string) string    { return s.path("checkpoints", id+".json") }

func (s *Store) hasImages(c *Checkpoint) bool {
	_, err := s.fs.Stat(s.imagePath(c.ID, c.Base))
	if err == nil && c.Base != "" {
		_, err = s.fs.Stat(s.imagePath(c.Base, ""))
	}
	return err == nil
}

// load reads the manifest of a full checkpoint id.
func (s *Store) load(id string) (*Checkpoint, error) {
	data, err := durable.ReadFile(s.fs, s.manifestPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("checkpoint %s: %w", short(id), ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return decodeManifest(id, data)
}
