package sidecar

import (
	"context"
	"fmt"
	"io"

	"tine/snapshot/content"
	"tine/snapshot/diff"
	"tine/snapshot/image"
)

// Change is one difference between two trees, in the form that documents show.
type Change struct {
	Schema string `json:"schema"`
	Status string `json:"status" doc:"A added, D deleted, M modified, T type changed, R renamed, H another name of a file that is listed or was there"`
	Path   string `json:"path"`
	// RawPath and RawFrom are set for names that are not UTF-8.
	RawPath string `json:"path_base64,omitempty" doc:"the path's bytes, where they are not UTF-8"`
	From    string `json:"from,omitempty" doc:"R: the old path; H: a name of the same file"`
	RawFrom string `json:"from_base64,omitempty" doc:"the bytes of from, where they are not UTF-8"`
	Kind    string `json:"kind" doc:"file, directory, symlink, fifo, socket, character device or block device"`

	Inode   uint64 `json:"inode" doc:"of the file; equal for a directory that is listed as deleted and as added: it was renamed"`
	OldMode string `json:"old_mode,omitempty" doc:"octal with the type's bits; absent when added"`
	Mode    string `json:"mode,omitempty" doc:"octal with the type's bits; absent when deleted"`
	OldSize int64  `json:"old_size" doc:"bytes"`
	Size    int64  `json:"size" doc:"bytes"`
	// What lists the attributes that differ, for M, T and R.
	What []string `json:"what,omitempty" doc:"content, mode, owner, xattrs, target, device, times or gitlink"`
	// Files counts what one line stands for: the workspace's .git.
	Files int `json:"files,omitempty" doc:"how many changes this line stands for, where it is .git"`
}

// ForkDiff is what a fork changed against its base.
type ForkDiff struct {
	Fork    string   `json:"fork"`
	Base    string   `json:"base"`
	Changes []Change `json:"changes"` // by path
}

// CountFiles counts the changed files: all changes but directories' and the workspace's .git.
func CountFiles(changes []Change) int {
	n := 0
	for _, c := range changes {
		if c.Files == 0 && c.Kind != "directory" {
			n++
		}
	}
	return n
}

// changeOf is the document of a change.
func changeOf(c *diff.Change) Change {
	n := c.New
	if c.Status == diff.Deleted {
		n = c.Old
	}
	d := Change{
		Schema: "tine.change/v1", Status: string(c.Status), Path: c.Path, RawPath: rawPath(c.Path), From: c.From, RawFrom: rawPath(c.From),
		Kind: kindName(n.Mode), Inode: n.Ino, OldMode: octal(c.Old.Mode), Mode: octal(c.New.Mode), OldSize: c.Old.Size, Size: c.New.Size,
		What: c.What.Names(), Files: c.Count,
	}
	if c.Count > 0 {
		d.Kind = "directory"
	}
	return d
}

func changesOf(list []diff.Change) []Change {
	docs := make([]Change, len(list))
	for i := range list {
		docs[i] = changeOf(&list[i])
	}
	return docs
}

// compare finds what changed from a to b; without all, the workspace's .git is one line.
func compare(ctx context.Context, a, b image.Files, opt diff.Options, all bool) ([]diff.Change, error) {
	changes, err := diff.Trees(ctx, a, b, opt)
	if err == nil && !all {
		changes = diff.CollapseGit(changes)
	}
	return changes, err
}

// render writes what changed from a to b as text.
func render(ctx context.Context, a, b image.Files, format content.ObjectFormat, opt diff.Options, req RenderRequest, w io.Writer) error {
	changes, err := compare(ctx, a, b, opt, req.All)
	if err != nil {
		return err
	}
	switch req.Format {
	case NameStatus:
		return diff.NameStatus(w, changes)
	case Stat:
		stats, err := diff.Stats(ctx, a, b, changes)
		if err != nil {
			return err
		}
		width := req.Width
		if width <= 0 {
			width = 80
		}
		return diff.WriteStat(w, stats, width)
	case Patch:
		_, err := diff.Patch(ctx, w, a, b, format, changes)
		return err
	}
	return &RequestError{"format", fmt.Sprintf("%q is no textual form of changes", req.Format)}
}

// CheckpointDiff tells what changed from one checkpoint to another.
func (h *Host) CheckpointDiff(ctx context.Context, a, b string, req DiffRequest) ([]Change, error) {
	from, to, _, err := h.pair(ctx, a, b)
	if err != nil {
		return nil, err
	}
	changes, err := compare(ctx, from, to, diff.Options{}, req.All)
	return changesOf(changes), err
}

// RenderCheckpoints writes the same as text.
func (h *Host) RenderCheckpoints(ctx context.Context, a, b string, req RenderRequest, w io.Writer) error {
	from, to, format, err := h.pair(ctx, a, b)
	if err != nil {
		return err
	}
	return render(ctx, from, to, format, diff.Options{}, req, w)
}

func (h *Host) pair(ctx context.Context, a, b string) (from, to image.Files, format content.ObjectFormat, err error) {
	ca, err := h.Resolve(ctx, a)
	if err != nil {
		return nil, nil, 0, err
	}
	cb, err := h.Resolve(ctx, b)
	if err != nil {
		return nil, nil, 0, err
	}
	if from, err = h.store.Files(ca.ID); err != nil {
		return nil, nil, 0, err
	}
	to, err = h.store.Files(cb.ID)
	return from, to, cb.Identity.ObjectFormat, err
}
