package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"tine/overlay"
	"tine/overlay/registry"
	"tine/snapshot"
)

// Fork is a fork as documents show it.
type Fork struct {
	Schema     string            `json:"schema"`
	Fork       string            `json:"fork" doc:"the id, 32 hex digits"`
	Name       string            `json:"name" doc:"empty when it has none"`
	Labels     map[string]string `json:"labels"`
	Checkpoint string            `json:"checkpoint" doc:"its base"`
	Parent     string            `json:"parent" doc:"the fork it was made from, empty when that was a checkpoint"`
	Generation uint64            `json:"generation" doc:"counts resets"`
	Layers     int               `json:"layers" doc:"how many layers its changes lie in"`
	MaxBytes   int64             `json:"max_bytes" doc:"0: no limit"`
	MaxFiles   int64             `json:"max_files" doc:"0: no limit"`
	Created    time.Time         `json:"created"`
	Path       *string           `json:"path" doc:"where it is mounted; null when it isn't"`
	PID        int               `json:"pid" doc:"the process that serves it; 0 without one"`
	Bytes      *int64            `json:"bytes" doc:"of all files; null in lists"`
	Inodes     *int64            `json:"inodes" doc:"of all kinds; null in lists"`
}

// minPrefix is how many digits of an id stand for it at least, so that a short name that is gone isn't taken for one.
const minPrefix = 4

// findFork finds a fork by id, shortened id or name, or by the name of the run that works in it.
func (h *Host) findFork(ref string) (registry.Fork, error) {
	if h.store == nil {
		return registry.Fork{}, &NotFoundError{"fork", ref}
	}
	f, err := h.forks.Get(ref)
	var none *registry.NotFoundError
	if !errors.As(err, &none) && (err != nil || f.ID == ref || f.Name == ref || len(ref) >= minPrefix) {
		return f, err
	}
	if r, rerr := h.RunRecord(ref); rerr == nil && r.Name == ref && len(r.Systems) > 0 {
		if f, err := h.forks.Get(r.Systems[0].Fork); !errors.As(err, &none) {
			return f, err
		}
	}
	return f, &NotFoundError{"fork", ref}
}

// Workspace opens a fork, here or through the process that serves it.
func (h *Host) Workspace(ctx context.Context, ref string, readOnly bool) (Workspace, error) {
	f, err := h.findFork(ref)
	if err != nil {
		return nil, err
	}
	return h.open(ctx, f, readOnly)
}

// Forks lists all forks, the newest first, and who serves them.
func (h *Host) Forks(ctx context.Context) ([]*Fork, error) {
	if h.store == nil {
		return nil, nil
	}
	list, err := h.forks.List()
	if err != nil {
		return nil, err
	}
	serving := map[string]ForkStatus{}
	err = eachServer(ctx, h.path("run"), h.store.ID(), func(r *remoteFork) (bool, error) {
		statuses, err := r.statuses(ctx)
		for _, s := range statuses {
			serving[s.Fork] = s
		}
		if ctx.Err() != nil {
			return false, err
		}
		return false, nil // one that dies while it is asked serves nothing
	})
	if err != nil {
		return nil, err
	}
	docs := make([]*Fork, 0, len(list))
	for i := range list {
		f := &list[len(list)-1-i]
		d := describeFork(f)
		if s, ok := serving[f.ID]; ok {
			d.setServer(s)
		}
		docs = append(docs, d)
	}
	return docs, nil
}

// Fork describes one fork, what it holds included.
func (h *Host) Fork(ctx context.Context, ref string) (*Fork, error) {
	f, err := h.findFork(ref)
	if err != nil {
		return nil, err
	}
	d := describeFork(&f)
	w, err := h.open(ctx, f, true)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	s, err := w.Status(ctx)
	if err != nil {
		return nil, err
	}
	bytes, inodes := int64(s.Bytes), int64(s.Inodes)
	d.Bytes, d.Inodes = &bytes, &inodes
	if _, remote := w.(*remoteFork); remote {
		d.setServer(s)
	}
	return d, nil
}

func describeFork(f *registry.Fork) *Fork {
	labels := f.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	return &Fork{
		Schema: "tine.fork/v1", Fork: f.ID, Name: f.Name, Labels: labels, Checkpoint: f.Base, Parent: f.Parent, Generation: f.Generation,
		Layers: len(f.Layers), MaxBytes: f.Limits.Bytes, MaxFiles: f.Limits.Inodes, Created: f.Created,
	}
}

func (d *Fork) setServer(s ForkStatus) {
	d.PID = s.PID
	d.Path = orNull(s.Mount)
}

// CreateForks makes forks of a checkpoint, or of a fork as it is at this instant. Where a name stands for both, the
// checkpoint is meant.
func (h *Host) CreateForks(ctx context.Context, ref string, req ForkRequest) ([]CreatedFork, error) {
	if err := h.checkForkNames(req); err != nil {
		return nil, err
	}
	c, cerr := h.Resolve(ctx, ref)
	if cerr == nil {
		return h.makeForks(c, req, newFork{})
	}
	if !isNotFound(cerr) {
		return nil, cerr
	}
	f, err := h.findFork(ref)
	if isNotFound(err) {
		return nil, &NotFoundError{"checkpoint or fork", ref}
	}
	if err != nil {
		return nil, err
	}
	w, err := h.open(ctx, f, false)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return w.Fork(ctx, req)
}

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }

// newFork says what new forks get beside what their request asks for.
type newFork struct {
	owners overlay.OwnerMap
	run    string // id of the run that owns it, "" for one that a person made
	parent string
	layers []overlay.LayerID // closed layers below their own
}

// makeForks registers req.Count forks, all or none. A fork is durable when it is first synced, and has no file before it
// is first written.
func (h *Host) makeForks(c snapshot.Checkpoint, req ForkRequest, n newFork) ([]CreatedFork, error) {
	if err := h.need(); err != nil {
		return nil, err
	}
	start := time.Now()
	var list []registry.Fork
	for i := range max(req.Count, 1) {
		f := registry.Fork{
			Name: forkName(req, i), Base: c.ID, Parent: n.parent, Layers: append(n.layers[:len(n.layers):len(n.layers)], overlay.NewLayerID()),
			Owners: n.owners, Labels: req.Labels, Limits: overlay.Limits{Bytes: req.MaxBytes, Inodes: req.MaxFiles},
		}
		if n.run != "" {
			f.ScopeToken = "run:" + n.run
		}
		if req.Force {
			if err := h.freeForkName(f.Name); err != nil {
				return nil, err
			}
		}
		list = append(list, f)
	}
	list, err := h.forks.Create(list...)
	if err != nil {
		return nil, err
	}
	micros := time.Since(start).Microseconds() / int64(len(list))
	var all []CreatedFork
	for _, f := range list {
		all = append(all, CreatedFork{Schema: "tine.fork-created/v1", Fork: f.ID, Name: f.Name, Checkpoint: f.Base, Parent: f.Parent, Micros: micros})
	}
	return all, nil
}

// forkName is the name of the i-th fork of a request.
func forkName(req ForkRequest, i int) string {
	if req.Name == "" || req.Count <= 1 {
		return req.Name
	}
	return fmt.Sprintf("%s-%d", req.Name, i+1)
}

// freeForkName takes a name away from the fork that has it.
func (h *Host) freeForkName(name string) error {
	f, err := h.forks.Get(name)
	var none *registry.NotFoundError
	if name == "" || errors.As(err, &none) {
		return nil
	}
	if err != nil || f.Name != name {
		return err
	}
	_, err = h.forks.Update(f.ID, func(f *registry.Fork) error { f.Name = ""; return nil })
	return err
}

// checkForkNames refuses names before anything is done for them.
func (h *Host) checkForkNames(req ForkRequest) error {
	if req.Name == "" {
		return nil
	}
	for i := range max(req.Count, 1) {
		name := forkName(req, i)
		if err := snapshot.CheckName(name); err != nil {
			return &RequestError{"--name", err.Error()}
		}
		f, err := h.findFork(name)
		if err == nil && f.Name == name && !req.Force {
			return &registry.NameTakenError{Name: name, Holder: f.ID}
		}
		if err != nil && !isNotFound(err) {
			return err
		}
	}
	return nil
}

// RemoveFork removes a fork and the layers that only it has (O6). One that is served is refused, unless force ends its
// service first.
func (h *Host) RemoveFork(ctx context.Context, ref string, force bool) (string, error) {
	f, err := h.findFork(ref)
	if err != nil {
		return "", err
	}
	server, err := findServer(ctx, h.path("run"), h.store.ID(), f.ID)
	if err != nil {
		return "", err
	}
	if server != nil {
		defer server.Close()
		if !force {
			s, err := server.Status(ctx)
			if err != nil {
				return "", err
			}
			return "", servedRefusal(f, s)
		}
		if err := server.unserve(ctx); err != nil {
			return "", err
		}
	}
	return f.ID, h.disposeFork(f.ID)
}

func servedRefusal(f registry.Fork, s ForkStatus) error {
	r := &Refusal{Rule: "serving", Code: "served", Summary: "another process serves the fork",
		Detail: fmt.Sprintf("fork %s is served by process %d", shortID(f.ID), s.PID)}
	switch {
	case s.Mount != "":
		r.Detail += ", mounted at " + s.Mount
		r.Remedy = "unmount it first (umount " + ShellWord(s.Mount) + ")"
	case s.Init != 0:
		r.Detail += ", for a run"
		r.Remedy = "wait for the run, or end it"
	}
	return r
}

func shortID(id string) string { return id[:min(12, len(id))] }

// disposeFork removes a fork that nobody serves, whether it can be opened or not. It is marked first, so that an
// interrupted removal is no fork any more and goes on when it is asked for again.
func (h *Host) disposeFork(id string) error {
	f, err := h.forks.Get(id)
	var none *registry.NotFoundError
	if errors.As(err, &none) {
		return nil
	}
	if err != nil {
		return err
	}
	if f.State == registry.Ready {
		release, err := h.holdSoon(id) // nobody serves it, and nobody can begin to
		if err != nil {
			return err
		}
		f, err = h.forks.Update(id, func(f *registry.Fork) error { f.State, f.Name = registry.Removing, ""; return nil })
		release()
		if err != nil {
			return err
		}
	}
	// Of forks that are removed at the same time, the one that is marked last removes the layers that they share.
	list, err := h.forks.List()
	if err != nil {
		return err
	}
	needed := map[overlay.LayerID]bool{}
	for _, other := range list {
		for _, layer := range other.Layers {
			needed[layer] = needed[layer] || other.State != registry.Removing
		}
	}
	for _, layer := range f.Layers {
		if needed[layer] {
			continue
		}
		dir := h.path("layers", layer.String())
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := h.store.FS().RemoveAll(dir); err != nil {
			return fmt.Errorf("removing a layer of fork %s: %w", shortID(id), err)
		}
	}
	return h.forks.Remove(id)
}
