package sidecar

import (
	"context"
	"time"

	"tine/snapshot"
	"tine/snapshot/gitimport"
)

// ImportGit says what of which repository becomes a checkpoint.
type ImportGit struct {
	Repo        string
	Rev         string // default HEAD
	Depth       int    // commits of history in the workspace's .git; 0 is 1
	FullHistory bool
	Exclude     []string // gitignore patterns
	Subpath     string
	Eager       bool // copy all contents now, so that the repository may go
	Dirty       bool // the work tree as it is: tracked and untracked, not ignored
	Name        string
	Force       bool // takes the name away from what has it
	Labels      map[string]string
	Progress    Progress
}

// Imported is the answer to an import.
type Imported struct {
	Schema     string   `json:"schema"`
	Checkpoint string   `json:"checkpoint" doc:"the id; the same for the same commit and options, in any store"`
	Tree       string   `json:"tree" doc:"git tree id of the same files"`
	Commit     *string  `json:"commit" doc:"null without one"`
	Files      int64    `json:"files" doc:"regular files and symlinks, .git not counted"`
	Bytes      int64    `json:"bytes" doc:"of those files"`
	Seconds    float64  `json:"seconds"`
	Name       string   `json:"name" doc:"empty when it got none"`
	Warnings   []string `json:"warnings" doc:"what the repository asks for that an import doesn't do"`
}

// ImportGit makes a checkpoint of a commit, or of a work tree.
func (h *Host) ImportGit(ctx context.Context, r ImportGit) (*Imported, error) {
	if err := h.checkName(r.Name, r.Force); err != nil {
		return nil, err
	}
	start := time.Now()
	res, err := h.importGit(ctx, r)
	if err != nil {
		return nil, err
	}
	return h.imported(ctx, res.Checkpoint, start, r.Name, r.Force, r.Labels, res.Warnings)
}

func (h *Host) importGit(ctx context.Context, r ImportGit) (*gitimport.Result, error) {
	repo, err := gitimport.Locate(r.Repo)
	if err != nil {
		return nil, err
	}
	if h.store == nil { // don't make a store for what can't be imported
		db := repo.Objects()
		_, err := repo.Resolve(db, r.Rev)
		db.Close()
		if err != nil {
			return nil, err
		}
		if err := h.need(); err != nil {
			return nil, err
		}
	}
	return repo.Import(ctx, h.store, gitimport.Request{
		Repo: r.Repo, Rev: r.Rev, Depth: r.Depth, FullHistory: r.FullHistory, Exclude: r.Exclude, Subpath: r.Subpath, Eager: r.Eager, Dirty: r.Dirty,
		Progress: r.Progress.files(),
	})
}

func (h *Host) imported(ctx context.Context, c snapshot.Checkpoint, start time.Time, name string, force bool, labels map[string]string, warnings []string) (*Imported, error) {
	tree, err := h.store.TreeID(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	if err := h.finish(c.ID, name, force, labels); err != nil {
		return nil, err
	}
	if warnings == nil {
		warnings = []string{}
	}
	return &Imported{Schema: "tine.import/v1", Checkpoint: c.ID, Tree: tree, Commit: orNull(c.Commit), Files: c.Files, Bytes: c.Bytes,
		Seconds: time.Since(start).Seconds(), Name: name, Warnings: warnings}, nil
}
