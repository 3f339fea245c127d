package sidecar

import (
	"context"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"tine/snapshot/dirimport"
)

// ImportDir says which directory becomes a checkpoint.
type ImportDir struct {
	Dir      string
	Exclude  []string // gitignore patterns
	Name     string
	Force    bool
	Labels   map[string]string
	Progress Progress
}

// ImportDir makes a checkpoint of a directory.
func (h *Host) ImportDir(ctx context.Context, r ImportDir) (*Imported, error) {
	if err := h.checkName(r.Name, r.Force); err != nil {
		return nil, err
	}
	if st, err := os.Stat(r.Dir); err != nil {
		return nil, err
	} else if !st.IsDir() {
		return nil, &fs.PathError{Op: "import", Path: r.Dir, Err: unix.ENOTDIR}
	}
	if err := h.need(); err != nil {
		return nil, err
	}
	start := time.Now()
	q := dirimport.Request{Dir: r.Dir, Exclude: r.Exclude}
	if r.Progress != nil {
		q.Progress = func(files, bytes int64) {
			r.Progress(Step{Stage: "reading " + strconv.FormatInt(files, 10) + " files", Done: bytes, Bytes: true})
		}
	}
	res, err := dirimport.Import(ctx, h.store, q)
	if err != nil {
		return nil, err
	}
	return h.imported(ctx, res.Checkpoint, start, r.Name, r.Force, r.Labels, res.Warnings)
}
