package sidecar

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tine/overlay/registry"
	"tine/sidecar/record"
)

// Runs lists the records of runs, the newest first. Damaged ones are left out and told by the error.
func (h *Host) Runs() ([]*record.Run, error) { return h.runs.List() }

// RunRecord finds a run by id, shortened id or name; of several runs of one name, the newest.
func (h *Host) RunRecord(ref string) (*record.Run, error) {
	all, err := h.runs.List()
	var found []*record.Run
	for _, r := range all {
		if r.Name == ref && ref != "" {
			return r, nil
		}
		if strings.HasPrefix(r.ID, ref) && len(ref) >= minPrefix {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return nil, errors.Join(&NotFoundError{"run", ref}, err)
	case 1:
		return found[0], nil
	}
	a := &AmbiguousError{Ref: ref}
	for _, r := range found[:min(len(found), 10)] {
		a.IDs = append(a.IDs, "run "+r.ID)
	}
	return nil, a
}

// checkRunName refuses a run's name before work is done for it: it must be free among runs, and, since the sealed
// checkpoint and a kept fork get it too, among those.
func (h *Host) checkRunName(req *RunRequest) error {
	if req.Name == "" {
		return nil
	}
	if err := h.checkName(req.Name, req.Force); err != nil {
		return err
	}
	if req.Keep && req.Fork == "" {
		if err := h.checkForkNames(ForkRequest{Name: req.Name, Force: req.Force}); err != nil {
			return err
		}
	}
	if req.Force {
		return nil
	}
	r, err := h.RunRecord(req.Name)
	if err == nil && r.Name == req.Name {
		return &Refusal{Rule: "names", Code: "name_taken", Summary: "the name belongs to another run",
			Detail: fmt.Sprintf("the name %q belongs to run %s", req.Name, shortID(r.ID)), Remedy: "--force gives it to the new one, too"}
	}
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// ForkOfRun is the fork of a run's primary system.
func (h *Host) ForkOfRun(ref string) (string, error) {
	r, err := h.RunRecord(ref)
	if err != nil {
		return "", err
	}
	if len(r.Systems) == 0 {
		return "", &NotFoundError{"fork of run", ref}
	}
	return r.Systems[0].Fork, nil
}

// RemoveRun removes the record of an ended run, and disposes of what a lost or failed disposal left: its fork, unless
// that was kept, and its pins.
func (h *Host) RemoveRun(ctx context.Context, ref string) (string, error) {
	r, err := h.RunRecord(ref)
	if err != nil {
		return "", err
	}
	if r.State == record.Running || r.State == record.Starting {
		return "", &Refusal{Rule: "C3", Code: "running", Summary: "the run is still going on",
			Detail: fmt.Sprintf("run %s is still going on, served by process %d", shortID(r.ID), r.Host.PID), Remedy: "end it first"}
	}
	if !r.Kept {
		for _, s := range r.Systems {
			f, err := h.forks.Get(s.Fork)
			var none *registry.NotFoundError
			if errors.As(err, &none) {
				continue
			}
			if err == nil && f.ScopeToken == "run:"+r.ID { // its own, by identity (C7)
				err = h.disposeFork(f.ID)
			}
			if err != nil {
				return "", err
			}
		}
	}
	pins, err := h.pins.List()
	if err != nil {
		return "", err
	}
	for _, p := range pins {
		if p.Owner == "run:"+r.ID && p.Until == nil {
			if err := h.pins.Release(p.ID); err != nil {
				return "", err
			}
		}
	}
	return r.ID, h.runs.Remove(r.ID)
}
