package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tine/overlay"
	"tine/sidecar/record"
	"tine/snapshot"
	"tine/snapshot/content"
	"tine/snapshot/gitimport"
	"tine/snapshot/image"
)

// FsckReport is what a check found.
type FsckReport struct {
	Schema      string   `json:"schema"`
	Checkpoints int64    `json:"checkpoints" doc:"checked"`
	Contents    int64    `json:"contents" doc:"read and compared with their ids"`
	Bytes       int64    `json:"bytes" doc:"of those contents"`
	Elsewhere   int64    `json:"elsewhere" doc:"contents that only a source repository has; read when one checkpoint is checked"`
	Forks       int64    `json:"forks" doc:"replayed"`
	Faults      []string `json:"faults" doc:"damage; fsck fails when there is any"`
	Notes       []string `json:"notes" doc:"what is not as it could be, but no damage"`
	Seconds     float64  `json:"seconds"`
}

// Fsck verifies one checkpoint with all its contents, wherever they are, or, without ref, everything that the store
// holds. It changes nothing.
func (h *Host) Fsck(ctx context.Context, ref string, progress Progress) (*FsckReport, error) {
	start := time.Now()
	c := &checker{host: h, progress: progress, seen: map[content.ID]bool{}}
	c.report = FsckReport{Schema: "tine.fsck/v1", Faults: []string{}, Notes: []string{}}
	if h.store == nil {
		if ref != "" {
			return nil, &NotFoundError{"checkpoint", ref}
		}
		return &c.report, nil
	}
	var err error
	// A handle of its own that keeps nothing: reading a content from a repository would store it.
	if c.store, err = snapshot.Open(h.dir, snapshot.Options{ReadOnly: true}); err != nil {
		return nil, err
	}
	defer c.store.Close()
	if ref != "" {
		one, err := h.Resolve(ctx, ref)
		if err != nil {
			return nil, err
		}
		c.checkpoint(ctx, one, true)
	} else {
		err = c.all(ctx)
	}
	c.report.Seconds = time.Since(start).Seconds()
	if err == nil {
		err = ctx.Err()
	}
	return &c.report, err
}

type checker struct {
	host     *Host
	store    *snapshot.Store
	progress Progress
	seen     map[content.ID]bool // contents that were checked for an earlier checkpoint

	mu     sync.Mutex
	report FsckReport // guarded by mu while contents are read in parallel
}

func (c *checker) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Faults = append(c.report.Faults, fmt.Sprintf(format, args...))
}

func (c *checker) note(format string, args ...any) {
	c.report.Notes = append(c.report.Notes, fmt.Sprintf(format, args...))
}

func (c *checker) all(ctx context.Context) error {
	list, err := c.store.List()
	c.faults(err)
	known := map[string]bool{}
	for _, one := range list {
		known[one.ID] = true
		c.checkpoint(ctx, one, false)
	}
	names, err := c.store.Names()
	c.faults(err)
	for _, n := range names {
		if !known[n.Checkpoint] {
			c.fault("the name %q stands for checkpoint %s, which is not there", n.Name, shortID(n.Checkpoint))
		}
	}
	if err := c.forks(ctx, known); err != nil {
		return err
	}
	return c.records(known)
}

// faults takes the parts of a joined error apart.
func (c *checker) faults(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			c.faults(e)
		}
	} else if err != nil {
		c.fault("%v", err)
	}
}

// checkpoint verifies the tree and what it refers to. With everything, contents that only a source has are read, too.
func (c *checker) checkpoint(ctx context.Context, one snapshot.Checkpoint, everything bool) {
	if ctx.Err() != nil {
		return
	}
	c.report.Checkpoints++
	id := shortID(one.ID)
	tree, err := c.store.Tree(one.ID)
	if err == nil {
		err = tree.Verify()
	}
	if err != nil {
		c.fault("checkpoint %s: %v", id, err)
		return
	}
	var ids []content.ID
	err = tree.EachContent(func(r image.ContentRef) bool {
		if !r.ID.IsZero() && !c.seen[r.ID] {
			c.seen[r.ID] = true
			ids = append(ids, r.ID)
		}
		return true
	})
	if err != nil {
		c.fault("checkpoint %s: %v", id, err)
		return
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	var done, bytes, read, elsewhere atomic.Int64
	for _, cid := range ids {
		g.Go(func() error {
			if gctx.Err() != nil {
				return gctx.Err()
			}
			if n := done.Add(1); c.progress != nil && n%64 == 0 {
				c.progress(Step{Stage: "checkpoint " + id, Done: n, Total: int64(len(ids))})
			}
			if !everything && !c.store.Has(cid) {
				elsewhere.Add(1)
				return nil
			}
			n, err := c.content(cid)
			if err != nil {
				c.fault("checkpoint %s: %v", id, err)
			}
			read.Add(1)
			bytes.Add(n)
			return nil
		})
	}
	g.Wait() // only ctx's error, which Fsck returns
	c.report.Contents += read.Load()
	c.report.Bytes += bytes.Load()
	c.report.Elsewhere += elsewhere.Load()
	if elsewhere.Load() > 0 {
		c.sources(one)
	}
}

// content reads a content to its end; the reader compares it with its id.
func (c *checker) content(id content.ID) (int64, error) {
	r, err := c.store.Open(id)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return io.Copy(io.Discard, io.NewSectionReader(r, 0, r.Size()))
}

// sources reports repositories that are gone and have contents which the store doesn't.
func (c *checker) sources(one snapshot.Checkpoint) {
	configs, err := c.store.Sources()
	if err != nil {
		c.fault("%v", err)
		return
	}
	for _, s := range configs {
		git, ok, err := gitimport.ParseSource(s)
		if err == nil && ok && slices.Contains(one.Sources, s.ID) {
			_, err = gitimport.Locate(git.CommonDir)
		}
		if err != nil {
			c.fault("checkpoint %s: contents that only its repository has can't be read: %v", shortID(one.ID), err)
		}
	}
}

// forks replays every fork that nobody serves.
func (c *checker) forks(ctx context.Context, known map[string]bool) error {
	list, err := c.host.forks.List()
	if err != nil {
		c.fault("%v", err)
		return nil
	}
	for _, f := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !known[f.Base] {
			c.fault("fork %s: its base %s is not there", shortID(f.ID), shortID(f.Base))
			continue
		}
		l, err := c.host.openLocal(f.ID, true)
		var served *overlay.ServedError
		switch {
		case errors.As(err, &served):
			c.note("fork %s is served by process %d and was not checked", shortID(f.ID), served.PID)
			continue
		case err != nil:
			c.fault("fork %s: %v", shortID(f.ID), err)
			continue
		}
		c.report.Forks++
		if err := l.Close(); err != nil {
			c.fault("fork %s: %v", shortID(f.ID), err)
		}
	}
	return c.layers()
}

// layers reports layers that no fork has.
func (c *checker) layers() error {
	owned, err := c.host.forks.Layers()
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for l := range owned {
		needed[l.String()] = true
	}
	entries, err := os.ReadDir(c.host.path("layers"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && !needed[e.Name()] {
			c.note("layer %s belongs to no fork", shortID(e.Name()))
		}
	}
	return nil
}

// records checks run records and pins.
func (c *checker) records(known map[string]bool) error {
	runs, err := c.host.runs.List()
	c.faults(err)
	for _, r := range runs {
		if r.State == record.Lost {
			c.note("run %s was lost with its process; 'tine runs rm %s' clears it away", shortID(r.ID), shortID(r.ID))
		}
	}
	pins, err := c.host.pins.List()
	c.faults(err)
	for _, p := range pins {
		if !known[p.Checkpoint] {
			c.fault("pin %s (%s) keeps checkpoint %s, which is not there", shortID(p.ID), p.Owner, shortID(p.Checkpoint))
		}
	}
	return nil
}
