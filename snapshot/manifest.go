package snapshot

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"tine/snapshot/content"
	"tine/snapshot/image"
)

// manifestVersion is the version of checkpoint manifests; FORMAT.md "Checkpoints".
const manifestVersion = 1

// Checkpoint is what the store knows of one checkpoint. All but the id, and what the id covers, may differ between stores.
type Checkpoint struct {
	ID       string // 64 hex digits
	Identity image.Identity
	// TreeID is the git tree id, in hex; "" while it hasn't been computed (Store.TreeID).
	TreeID string
	// Commit is the commit that the checkpoint was imported from, in hex, or "".
	Commit string
	// Files and Bytes count regular files and symlinks, and what they hold, outside of the top .git.
	Files, Bytes int64
	// Parent is the checkpoint that this one was sealed over, or "".
	Parent string
	// Base is the checkpoint over whose image this one's is a delta; "" when it has an image of its own.
	Base string
	// Sources are the ids of the sources that contents may have to come from.
	Sources []string
}

// manifest is STORE/checkpoints/<id>.json. The fields are in the order of canonical JSON (RFC 8785).
type manifest struct {
	BaseImage string           `json:"base_image,omitempty"`
	Bytes     int64            `json:"bytes"`
	Commit    string           `json:"commit,omitempty"`
	Files     int64            `json:"files"`
	Identity  manifestIdentity `json:"identity"`
	Image     string           `json:"image"`
	Parent    string           `json:"parent,omitempty"`
	Sources   []string         `json:"sources,omitempty"`
	Tree      string           `json:"tree,omitempty"`
	Version   int              `json:"version"`
}

type manifestIdentity struct {
	EntriesRoot  string `json:"entries_root"`
	Format       int    `json:"format"`
	NodesRoot    string `json:"nodes_root"`
	ObjectFormat string `json:"object_format"`
}

// imageName is the checkpoint's image in STORE/images; a delta's name has the base's id, since one tree may be sealed
// over different ones.
func imageName(id, base string) string {
	if base == "" {
		return id + ".img"
	}
	return id + "-" + base + ".delta"
}

func (c *Checkpoint) encode() ([]byte, error) {
	m := manifest{
		Bytes: c.Bytes, Commit: c.Commit, Files: c.Files, Parent: c.Parent, Sources: c.Sources, Tree: c.TreeID, Version: manifestVersion,
		Image: imageName(c.ID, c.Base),
		Identity: manifestIdentity{
			EntriesRoot:  hex.EncodeToString(c.Identity.EntriesRoot[:]),
			Format:       c.Identity.Format,
			NodesRoot:    hex.EncodeToString(c.Identity.NodesRoot[:]),
			ObjectFormat: c.Identity.ObjectFormat.String(),
		},
	}
	if c.Base != "" {
		m.BaseImage = imageName(c.Base, "")
	}
	data, err := json.Marshal(&m)
	if err != nil {
		return nil, err
	}
	if back, err := decodeManifest(c.ID, data); err != nil || back.ID != c.ID {
		return nil, fmt.Errorf("checkpoint %s can't be described: %w", short(c.ID), err)
	}
	return data, nil
}

// decodeManifest accepts exactly what encode writes: canonical JSON without unknown fields, whose identity has the id.
func decodeManifest(id string, data []byte) (*Checkpoint, error) {
	bad := func(why string, args ...any) (*Checkpoint, error) {
		return nil, &ManifestError{Checkpoint: id, Why: fmt.Sprintf(why, args...)}
	}
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return bad("%v", err)
	}
	if v.Version != manifestVersion {
		return nil, &VersionError{What: "checkpoint " + short(id), Got: v.Version, Known: manifestVersion}
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return bad("%v", err)
	}
	// Duplicate and unknown fields, other spellings and other orders don't survive this.
	if again, err := json.Marshal(&m); err != nil || !bytes.Equal(again, data) {
		return bad("it is not in canonical form")
	}
	c := &Checkpoint{ID: id, TreeID: m.Tree, Commit: m.Commit, Files: m.Files, Bytes: m.Bytes, Parent: m.Parent, Sources: m.Sources}
	c.Identity.Format = m.Identity.Format
	switch m.Identity.ObjectFormat {
	case "sha1":
		c.Identity.ObjectFormat = content.SHA1
	case "sha256":
		c.Identity.ObjectFormat = content.SHA256
	default:
		return bad("object format %q", m.Identity.ObjectFormat)
	}
	if !hexInto(c.Identity.EntriesRoot[:], m.Identity.EntriesRoot) || !hexInto(c.Identity.NodesRoot[:], m.Identity.NodesRoot) {
		return bad("a root is not 64 hex digits")
	}
	if got := c.Identity.CheckpointID(); got != id {
		return bad("it describes checkpoint %s", short(got))
	}
	if m.BaseImage != "" {
		n := len(m.BaseImage) - len(imageName("", ""))
		if n < 0 || !isID(m.BaseImage[:n]) || imageName(m.BaseImage[:n], "") != m.BaseImage {
			return bad("base image %q", m.BaseImage)
		}
		c.Base = m.BaseImage[:n]
	}
	oid := 2 * c.Identity.ObjectFormat.HashSize()
	switch {
	case m.Image != imageName(id, c.Base):
		return bad("image %q", m.Image)
	case c.TreeID != "" && (len(c.TreeID) != oid || !isHex(c.TreeID)):
		return bad("tree id %q", c.TreeID)
	case c.Commit != "" && (len(c.Commit) != oid || !isHex(c.Commit)):
		return bad("commit id %q", c.Commit)
	case c.Parent != "" && !isID(c.Parent):
		return bad("parent %q", c.Parent)
	case c.Files < 0 || c.Bytes < 0:
		return bad("negative counts")
	}
	for _, s := range c.Sources {
		if len(s) != 32 || !isHex(s) {
			return bad("source %q", s)
		}
	}
	return c, nil
}

// ManifestError says that a checkpoint's manifest is damaged.
type ManifestError struct{ Checkpoint, Why string }

func (e *ManifestError) Error() string {
	return fmt.Sprintf("checkpoint %s: its manifest is damaged: %s", short(e.Checkpoint), e.Why)
}

func hexInto(dst []byte, s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && isHex(s) && copy(dst, b) == len(dst) && len(b) == len(dst)
}

// isHex: lower-case hex digits only, at least one.
func isHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return s != ""
}

// isID reports whether s is a full checkpoint id.
func isID(s string) bool { return len(s) == 64 && isHex(s) }
