package sidecar

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"tine/overlay"
	"tine/overlay/registry"
	"tine/sidecar/record"
	"tine/snapshot"
)

// FsckRequest says what to check.
type FsckRequest struct {
	Checkpoint string // "" is everything
	Quick      bool   // contents are looked for, not read
	Repair     bool   // mends what can be mended without losing anything
}

// FsckReport is what a check found.
type FsckReport struct {
	Schema      string   `json:"schema"`
	Checkpoints int      `json:"checkpoints" doc:"checked"`
	Contents    int      `json:"contents" doc:"that those use, each once"`
	InSources   int      `json:"in_sources" doc:"contents that only a source repository has"`
	Bytes       int64    `json:"bytes" doc:"read and compared with their ids"`
	Forks       int      `json:"forks" doc:"replayed"`
	Faults      []string `json:"faults" doc:"damage; fsck fails when there is any"`
	Repaired    []string `json:"repaired" doc:"damage that is mended"`
	Notes       []string `json:"notes" doc:"what is not as it could be, but no damage"`
	Seconds     float64  `json:"seconds"`
}

// Fsck verifies one checkpoint with all that it reaches, or everything in the store, forks and records included.
func (h *Host) Fsck(ctx context.Context, req FsckRequest) (*FsckReport, error) {
	start := time.Now()
	c := &checker{host: h, quick: req.Quick}
	c.report = FsckReport{Schema: "tine.fsck/v1", Faults: []string{}, Repaired: []string{}, Notes: []string{}}
	opt := snapshot.CheckOptions{Full: !req.Quick, Repair: req.Repair}
	if h.store == nil {
		if req.Checkpoint != "" {
			return nil, &NotFoundError{"checkpoint", req.Checkpoint}
		}
		return &c.report, nil
	}
	if req.Checkpoint != "" {
		one, err := h.Resolve(ctx, req.Checkpoint)
		if err != nil {
			return nil, err
		}
		opt.Checkpoint = one.ID
	}
	store := h.store
	if !req.Repair {
		// A handle of its own that keeps nothing: reading a content from a repository would store it.
		var err error
		if store, err = snapshot.Open(h.dir, snapshot.Options{ReadOnly: true}); err != nil {
			return nil, err
		}
		defer store.Close()
	}
	stats, err := store.Check(ctx, opt, func(p snapshot.Problem) {
		if p.Repaired {
			c.report.Repaired = append(c.report.Repaired, p.String())
		} else {
			c.report.Faults = append(c.report.Faults, p.String())
		}
	})
	if err == nil && req.Checkpoint == "" {
		err = c.all(ctx)
	}
	c.report.Checkpoints, c.report.Contents, c.report.InSources, c.report.Bytes = stats.Checkpoints, stats.Contents, stats.InSources, stats.Bytes
	c.report.Seconds = time.Since(start).Seconds()
	return &c.report, err
}

// checker looks at what is not the store's own: forks, layers, records.
type checker struct {
	host   *Host
	quick  bool // stored bytes are not read
	report FsckReport
}

func (c *checker) fault(format string, args ...any) {
	c.report.Faults = append(c.report.Faults, fmt.Sprintf(format, args...))
}

func (c *checker) note(format string, args ...any) {
	c.report.Notes = append(c.report.Notes, fmt.Sprintf(format, args...))
}

func (c *checker) all(ctx context.Context) error {
	list, err := c.host.store.List() // the store's own check has told of damaged ones
	known := map[string]bool{}
	for _, one := range list {
		known[one.ID] = true
	}
	if err != nil && len(list) == 0 {
		return nil
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
		if f.State == registry.Removing {
			c.note("fork %s is being removed; 'tine fork rm %s' finishes that", shortID(f.ID), shortID(f.ID))
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
		if !c.quick {
			if err := l.fork.VerifyData(ctx); err != nil {
				c.fault("fork %s: %v", shortID(f.ID), err)
			}
		}
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
