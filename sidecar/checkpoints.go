package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"tine/snapshot"
	"tine/snapshot/image"
)

// Checkpoint is a checkpoint as documents show it.
type Checkpoint struct {
	Schema       string            `json:"schema"`
	Checkpoint   string            `json:"checkpoint" doc:"the id, 64 hex digits: a function of the files alone"`
	Tree         string            `json:"tree" doc:"git tree id of the same files, .git left out"`
	Commit       *string           `json:"commit" doc:"the commit it was imported from; null without one"`
	Names        []string          `json:"names"`
	Labels       map[string]string `json:"labels"`
	Files        int64             `json:"files" doc:"regular files and symlinks, .git not counted"`
	Bytes        int64             `json:"bytes" doc:"of those files"`
	Parent       *string           `json:"parent" doc:"the checkpoint it was sealed over; null for an import"`
	ObjectFormat string            `json:"object_format" doc:"sha1 or sha256"`
	Created      *time.Time        `json:"created" doc:"when this store got it; not part of the id"`
	Provenance   []Provenance      `json:"provenance" doc:"where it came from, each time it came; not part of the id"`
}

// Provenance tells how a checkpoint came to be, once.
type Provenance struct {
	At     time.Time         `json:"at"`
	Kind   string            `json:"kind" doc:"git, dir or seal"`
	Source string            `json:"source" doc:"the repository, directory or fork"`
	Detail map[string]string `json:"detail"`
}

// labelPrefix marks a label in a provenance record's details.
const labelPrefix = "label."

// Resolve finds a checkpoint by id, shortened id or name, or imports git:PATH@REV.
func (h *Host) Resolve(ctx context.Context, ref string) (snapshot.Checkpoint, error) {
	if repo, ok := strings.CutPrefix(ref, "git:"); ok {
		rev := ""
		if i := strings.LastIndexByte(repo, '@'); i >= 0 {
			repo, rev = repo[:i], repo[i+1:]
		}
		res, err := h.importGit(ctx, ImportGit{Repo: repo, Rev: rev})
		if err != nil {
			return snapshot.Checkpoint{}, err
		}
		return res.Checkpoint, nil
	}
	if h.store == nil {
		return snapshot.Checkpoint{}, &NotFoundError{"checkpoint", ref}
	}
	c, err := h.store.Checkpoint(ref)
	if errors.Is(err, snapshot.ErrNotFound) {
		return c, &NotFoundError{"checkpoint", ref}
	}
	return c, err
}

// Checkpoint describes a checkpoint. Its tree id is computed if it isn't known yet.
func (h *Host) Checkpoint(ctx context.Context, ref string) (*Checkpoint, error) {
	c, err := h.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if c.TreeID, err = h.store.TreeID(ctx, c.ID); err != nil {
		return nil, err
	}
	names, err := h.store.Names()
	if err != nil {
		return nil, err
	}
	return h.describe(c, names)
}

// Checkpoints lists what the store has, the newest first, without computing tree ids. Damaged ones are left out and
// told by the error.
func (h *Host) Checkpoints() ([]*Checkpoint, error) {
	if h.store == nil {
		return nil, nil
	}
	list, listErr := h.store.List()
	names, err := h.store.Names()
	if err != nil {
		return nil, err
	}
	var all []*Checkpoint
	for _, c := range list {
		d, err := h.describe(c, names)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	slices.SortStableFunc(all, func(a, b *Checkpoint) int { return created(b).Compare(created(a)) })
	return all, listErr
}

func created(c *Checkpoint) time.Time {
	if c.Created == nil {
		return time.Time{}
	}
	return *c.Created
}

func (h *Host) describe(c snapshot.Checkpoint, names []snapshot.Name) (*Checkpoint, error) {
	d := &Checkpoint{
		Schema: "tine.checkpoint/v1", Checkpoint: c.ID, Tree: c.TreeID, Commit: orNull(c.Commit), Names: []string{}, Labels: map[string]string{},
		Files: c.Files, Bytes: c.Bytes, Parent: orNull(c.Parent), ObjectFormat: c.Identity.ObjectFormat.String(), Provenance: []Provenance{},
	}
	for _, n := range names {
		if n.Checkpoint == c.ID {
			d.Names = append(d.Names, n.Name)
		}
	}
	records, err := h.store.Provenance(c.ID)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		p := Provenance{At: r.At, Kind: r.Kind, Source: r.Source, Detail: map[string]string{}}
		for k, v := range r.Detail {
			if label, ok := strings.CutPrefix(k, labelPrefix); ok {
				d.Labels[label] = v
			} else {
				p.Detail[k] = v
			}
		}
		if p.Kind != kindLabel {
			d.Provenance = append(d.Provenance, p)
		}
	}
	if len(records) > 0 {
		d.Created = &records[0].At
	}
	return d, nil
}

// kindLabel is the kind of provenance record that only carries labels.
const kindLabel = "label"

// finish gives a new checkpoint its name and labels.
func (h *Host) finish(id, name string, force bool, labels map[string]string) error {
	if len(labels) > 0 {
		detail := map[string]string{}
		for k, v := range labels {
			detail[labelPrefix+k] = v
		}
		if err := h.store.AddProvenance(id, snapshot.Provenance{Kind: kindLabel, Detail: detail}); err != nil {
			return err
		}
	}
	if name == "" {
		return nil
	}
	return h.store.Tag(id, name, force)
}

// checkName refuses a name for a checkpoint before work is done for it.
func (h *Host) checkName(name string, force bool) error {
	if name == "" {
		return nil
	}
	if err := snapshot.CheckName(name); err != nil {
		return &RequestError{"--name", err.Error()}
	}
	if force || h.store == nil {
		return nil
	}
	names, err := h.store.Names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if n.Name == name {
			return &snapshot.NameTakenError{Name: n.Name, Checkpoint: n.Checkpoint}
		}
	}
	return nil
}

// Tag names a checkpoint.
func (h *Host) Tag(ctx context.Context, ref, name string, force bool) (string, error) {
	c, err := h.Resolve(ctx, ref)
	if err != nil {
		return "", err
	}
	if err := snapshot.CheckName(name); err != nil {
		return "", &RequestError{"NAME", err.Error()}
	}
	return c.ID, h.store.Tag(c.ID, name, force)
}

// Untag removes a name. The checkpoint's data goes by gc, if nothing else needs it.
func (h *Host) Untag(name string) error {
	if h.store == nil {
		return &NotFoundError{missingName, name}
	}
	err := h.store.Untag(name)
	if errors.Is(err, snapshot.ErrNotFound) {
		return &NotFoundError{missingName, name}
	}
	return err
}

// TreeEntry is one file of a checkpoint.
type TreeEntry struct {
	Schema  string `json:"schema"`
	Path    string `json:"path"`
	RawPath string `json:"path_base64,omitempty" doc:"the path's bytes, where they are not UTF-8"`
	Kind    string `json:"kind" doc:"file, directory, symlink, fifo, socket, character device or block device"`
	Mode    string `json:"mode" doc:"octal with the type's bits"`
	UID     uint32 `json:"uid"`
	GID     uint32 `json:"gid"`
	Size    int64  `json:"size" doc:"bytes; of a symlink's target; 0 for what has none"`
	Links   uint32 `json:"links"`
	Inode   uint64 `json:"inode"`
	MTime   string `json:"mtime" doc:"RFC 3339 with nanoseconds"`
	Content string `json:"content" doc:"algorithm:digest of the bytes, none for what has none"`
	Gitlink string `json:"gitlink,omitempty" doc:"a submodule's commit"`
}

// Walk yields the entries at and below name ("" is the root, which is not yielded itself), parents before children,
// names in byte order. With all, the workspace's .git is walked, too.
func (h *Host) Walk(ctx context.Context, id, name string, all bool, yield func(TreeEntry) error) error {
	files, err := h.store.Files(id)
	if err != nil {
		return err
	}
	at, err := find(files, name)
	if err != nil {
		return err
	}
	name = strings.Trim(path.Clean("/"+name), "/")
	if name != "" && at.Mode&kindMask != dirKind {
		return yield(treeEntry(name, at))
	}
	return walk(ctx, files, at.Ino, name, all, yield)
}

func walk(ctx context.Context, files image.Files, dir uint64, prefix string, all bool, yield func(TreeEntry) error) error {
	entries, err := list(files, dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if prefix == "" && e.Name == ".git" && !all {
			continue
		}
		n, err := files.Node(e.Ino)
		if err != nil {
			return fmt.Errorf("%s: %w", path.Join(prefix, e.Name), err)
		}
		full := e.Name
		if prefix != "" {
			full = prefix + "/" + e.Name
		}
		if err := yield(treeEntry(full, n)); err != nil {
			return err
		}
		if n.Mode&kindMask == dirKind {
			if err := walk(ctx, files, n.Ino, full, all, yield); err != nil {
				return err
			}
		}
	}
	return nil
}

// list reads a directory, in byte order of the names.
func list(files image.Tree, dir uint64) ([]image.Dirent, error) {
	var entries []image.Dirent
	err := files.ReadDir(dir, 0, func(e image.Dirent) bool { entries = append(entries, e); return true })
	slices.SortFunc(entries, func(a, b image.Dirent) int { return strings.Compare(a.Name, b.Name) })
	return entries, err
}

// find looks a path up without following symlinks.
func find(files image.Tree, name string) (image.Node, error) {
	n, err := files.Node(image.Root)
	for _, part := range strings.Split(name, "/") {
		if err != nil {
			break
		}
		if part == "" || part == "." {
			continue
		}
		var e image.Dirent
		if n.Mode&kindMask != dirKind {
			err = image.ErrNotExist
		} else if e, err = files.Lookup(n.Ino, part); err == nil {
			n, err = files.Node(e.Ino)
		}
	}
	if errors.Is(err, image.ErrNotExist) {
		return n, &NotFoundError{missingPath, name}
	}
	return n, err
}

// Cat writes a file's bytes; of a symlink, what it points to is not followed: its target is the content.
func (h *Host) Cat(ctx context.Context, ref, name string, w io.Writer) error {
	c, err := h.Resolve(ctx, ref)
	if err != nil {
		return err
	}
	files, err := h.store.Files(c.ID)
	if err != nil {
		return err
	}
	n, err := find(files, name)
	if err != nil {
		return err
	}
	if k := n.Mode & kindMask; k != fileKind && k != linkKind {
		return &RequestError{"PATH", fmt.Sprintf("%s is a %s", name, kindName(n.Mode))}
	}
	r, err := files.OpenFile(n)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, io.NewSectionReader(r, 0, n.Size))
	return err
}
