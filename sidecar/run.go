package sidecar

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"tine/overlay"
	"tine/sidecar/isolate"
	"tine/sidecar/record"
	"tine/snapshot"
	"tine/snapshot/gitimport"
)

// RunResult is how a run ended. Changes has one list for each system of the record.
type RunResult struct {
	Record  *record.Run
	Changes [][]Change
	Joined  bool // the fork was there before; changes are all that it has
}

// run is one launch under way. What it has allocated is in it, in order, and given back in the reverse order.
type run struct {
	host   *Host
	req    *RunRequest
	who    identity
	env    []string
	hide   []string
	warned []string // by the import
	record *record.Run
	base   snapshot.Checkpoint
	pin    string   // id; "" before it is made
	fork   *service // nil before it is served
	owned  string   // id of the fork that this run has made; "" for one that was there
}

// Run runs a program in a fork, to its end: import, pin, fork, mount, start, wait, seal, dispose. The error is tine's
// own; how the program ended is in the record. Without a result nothing was begun and there is no record.
// Cancelling ctx ends the preparation; a running program is ended by req.Signals.
func (h *Host) Run(ctx context.Context, req *RunRequest) (*RunResult, error) {
	r := &run{host: h, req: req}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	changes, err := r.execute(ctx)
	return &RunResult{Record: r.record, Changes: [][]Change{changes}, Joined: req.Fork != ""}, err
}

// prepare does everything that can be refused without leaving anything: it only reads, and imports last.
func (r *run) prepare(ctx context.Context) error {
	if err := r.req.validate(); err != nil {
		return err
	}
	if err := r.host.checkRunName(r.req); err != nil {
		return err
	}
	var err error
	if r.who, err = resolveUser(r.req.User); err != nil {
		return err
	}
	if r.env, err = r.req.environment(r.who, r.req.workdir()); err != nil {
		return err
	}
	here := r.req.Repo == "" && r.req.Checkpoint == "" && r.req.Fork == ""
	if here {
		r.req.Repo = "."
	}
	r.hide = []string{r.host.dir}
	if r.req.Repo != "" {
		repo, err := gitimport.Locate(r.req.Repo)
		if err != nil && here {
			return fmt.Errorf("nothing to work on: neither --repo nor --checkpoint is given, and here is no repository: %w", err)
		}
		if err != nil {
			return err
		}
		places, err := repositoryPlaces(repo)
		if err != nil {
			return err
		}
		r.hide = append(r.hide, places...)
	}
	if err := r.cover(); err != nil {
		return err
	}
	if r.base, err = r.source(ctx); err != nil {
		return err
	}
	places, err := r.host.placesOf(r.base)
	if err != nil {
		return err
	}
	r.hide = outermost(append(r.hide, places...))
	return r.cover()
}

func (r *run) cover() error {
	if r.req.WritableHost {
		return nil
	}
	return checkCover(r.hide, r.who.home)
}

// source finds or imports what the run starts from.
func (r *run) source(ctx context.Context) (snapshot.Checkpoint, error) {
	switch {
	case r.req.Fork != "":
		f, err := r.host.findFork(r.req.Fork)
		if err != nil {
			return snapshot.Checkpoint{}, err
		}
		return r.host.store.Checkpoint(f.Base)
	case r.req.Checkpoint != "":
		return r.host.Resolve(ctx, r.req.Checkpoint)
	default:
		res, err := r.host.importGit(ctx, ImportGit{Repo: r.req.Repo, Rev: r.req.Rev, Progress: r.req.Progress})
		if err != nil {
			return snapshot.Checkpoint{}, err
		}
		r.warned = res.Warnings
		return res.Checkpoint, nil
	}
}

// execute does what allocates, with everything that it allocates disposed of in every ending.
func (r *run) execute(ctx context.Context) (changes []Change, err error) {
	defer func() { err = r.end(err) }()
	tree, err := r.host.store.TreeID(ctx, r.base.ID)
	if err != nil {
		return nil, err
	}
	if err := r.serve(ctx); err != nil {
		return nil, err
	}
	id, err := r.host.identityOf("workspace", r.base, tree)
	if err != nil {
		return nil, err
	}
	r.record.Systems = []record.System{{Name: id.Name, Path: workspaceDir, Fork: r.fork.id, Checkpoint: id.Checkpoint, Tree: id.Tree, Commit: id.Commit}}
	r.record.Environment = []record.Identity{id}
	if r.record.Digests["environment"], err = record.Digest(r.record.Environment); err != nil {
		return nil, err
	}
	r.record.State = record.Running
	if err := r.host.runs.Write(r.record); err != nil {
		return nil, err
	}
	status, err := r.program(ctx)
	if err != nil {
		return nil, err
	}
	r.ended(status)
	return r.settle(context.WithoutCancel(ctx))
}

// begin names the run and pins its checkpoint, before the fork exists (A11).
func (r *run) begin(ctx context.Context) error {
	h, q := r.host, r.req
	if err := h.makeDir("tmp"); err != nil {
		return err
	}
	self, err := record.Self()
	if err != nil {
		return err
	}
	labels := maps.Clone(q.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	command := record.Command{Args: q.Args, Dir: q.workdir(), User: fmt.Sprintf("%d:%d", r.who.uid, r.who.gid), Env: shownEnv(q.Env)}
	r.record = &record.Run{
		ID: record.NewID(), Name: q.Name, Labels: labels, State: record.Starting, Command: command, Runtime: "local",
		Limits:  record.Limits{DeadlineSeconds: int64(q.Deadline / time.Second), Memory: q.Memory, CPUs: q.CPUs, PIDs: q.PIDs, Network: q.Network},
		Digests: map[string]string{}, Started: time.Now().UTC(), Kept: q.Keep || q.Fork != "", Host: self,
		Systems: []record.System{}, Environment: []record.Identity{}, Notes: []string{},
		Warnings: append([]string{}, r.warned...),
	}
	if r.record.Digests["command"], err = record.Digest(command); err != nil {
		return err
	}
	p, err := h.pins.Intend(r.base.ID, "run:"+r.record.ID, q.Retain)
	if err != nil {
		return err
	}
	r.pin = p.ID
	_, err = h.store.Checkpoint(r.base.ID) // read back under the pin
	if err == nil {
		err = h.pins.Confirm(p.ID)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return errors.Join(err, h.pins.Release(p.ID))
	}
	return nil
}

// shownEnv is what the record keeps of --env: what was given in clear. A bare KEY's value comes from the caller's
// environment and may be a secret, so the record has the key alone.
func shownEnv(env []string) []string {
	if env == nil {
		return []string{}
	}
	return slices.Clone(env)
}

// identityOf is the environment identity of a system at the start (A10).
func (h *Host) identityOf(name string, c snapshot.Checkpoint, tree string) (record.Identity, error) {
	id := record.Identity{Name: name, Checkpoint: c.ID, Tree: tree, Commit: orNull(c.Commit)}
	records, err := h.store.Provenance(c.ID)
	for _, p := range records {
		if p.Kind == "git" && p.Detail["source_commit"] == c.Commit && p.Detail["workspace_commit"] != c.Commit {
			id.WorkspaceCommit = orNull(p.Detail["workspace_commit"])
		}
	}
	return id, err
}

// serve makes the run's fork, or opens the one that it is to work in, and serves it on a mount that nobody sees yet.
func (r *run) serve(ctx context.Context) error {
	h, q := r.host, r.req
	if q.Fork != "" {
		f, err := h.findFork(q.Fork)
		if err != nil {
			return err
		}
		r.fork, err = h.join(ctx, f)
		return err
	}
	name := ""
	if q.Keep {
		name = q.Name
	}
	made, err := h.makeForks(r.base, ForkRequest{Name: name, Force: q.Force, Labels: q.Labels},
		newFork{owners: overlay.OwnerMap{UID: r.who.uid, GID: r.who.gid}, run: r.record.ID})
	if err != nil {
		return err
	}
	r.owned = made[0].Fork
	f, err := h.forks.Get(r.owned)
	if err != nil {
		return err
	}
	r.fork, err = h.serve(ctx, f, true)
	return err
}

// program starts the program and waits for its end. The error is of a program that never ran.
func (r *run) program(ctx context.Context) (isolate.Status, error) {
	q := r.req
	spec := isolate.Spec{
		Args: q.Args, Env: r.env, Dir: q.workdir(), UID: r.who.uid, GID: r.who.gid, Groups: r.who.groups,
		Workspaces: []isolate.Workspace{r.fork.workspace()}, Hide: r.hide, WritableHost: q.WritableHost,
		Network: isolate.Network(q.Network), Limits: isolate.Limits{Memory: q.Memory, CPUs: q.CPUs, Pids: q.PIDs},
		Home: isolate.Home{Path: r.who.home}, TTY: q.TTY, Stdin: q.Stdin, Stdout: q.Stdout, Stderr: q.Stderr,
		Scratch: r.host.path("tmp"),
	}
	if q.Started != nil {
		q.Started()
	}
	if q.Deadline > 0 {
		spec.Deadline = time.Now().Add(q.Deadline)
	}
	p, err := isolate.Start(ctx, spec)
	if err != nil {
		return isolate.Status{}, err
	}
	report := p.Report()
	r.record.Isolation, r.record.Home, r.record.Notes = report.Isolation, report.Home, notesOf(report)
	r.fork.setInit(p.InitPID())
	defer r.fork.setInit(0)
	r.forward(p)
	return p.Wait()
}

// notesOf says what of the isolation is not as it would be elsewhere.
func notesOf(report isolate.Report) []string {
	notes := append([]string{}, report.Notes...)
	if report.HomeReason != "" {
		notes = append(notes, "home "+report.Home+": "+report.HomeReason)
	}
	return notes
}

// forward passes signals on until the program has ended. Who insists (the third SIGINT or SIGTERM) kills it.
func (r *run) forward(p *isolate.Process) {
	insisting := 0
	for {
		select {
		case <-p.Done():
			return
		case s := <-r.req.Signals:
			if s == unix.SIGINT || s == unix.SIGTERM {
				if insisting++; insisting >= 3 {
					p.Kill()
					continue
				}
			}
			p.Signal(s)
		}
	}
}

func (r *run) ended(s isolate.Status) {
	now := time.Now().UTC()
	r.record.Ended, r.record.Seconds = &now, s.Elapsed.Seconds()
	r.record.Status, r.record.OOMKilled = &s.Code, s.OOMKilled
	switch {
	case s.Expired:
		r.record.State = record.Deadline
	case s.Signal != 0:
		r.record.State = record.Killed
	default:
		r.record.State = record.Exited
	}
}

// settle looks at what the program did and seals it.
func (r *run) settle(ctx context.Context) ([]Change, error) {
	s := &r.record.Systems[0]
	s.ReadErrors = r.fork.readErrors()
	diff, err := r.fork.Diff(ctx, DiffRequest{})
	if err != nil {
		return nil, err
	}
	s.ChangedFiles = CountFiles(diff.Changes)
	seal := r.req.Seal == SealAlways || r.req.Seal == SealChanged && len(diff.Changes) > 0
	if seal {
		receipt, err := r.fork.Seal(ctx, SealRequest{Name: r.req.Name, Force: r.req.Force, Labels: r.req.Labels, Run: r.record.ID, Quiet: r.owned != ""})
		if err != nil {
			return diff.Changes, fmt.Errorf("sealing: %w", err)
		}
		r.record.FrozenUS = receipt.FrozenUS
		s.Sealed, s.SealedTree = &receipt.Checkpoint, &receipt.Tree
	}
	return diff.Changes, nil
}

// end disposes of what the run allocated and writes the final record. err is why it ends early, nil when it doesn't.
func (r *run) end(err error) error {
	if err != nil {
		r.failed(err)
	}
	h := r.host
	// The record first: what was sealed is kept by it from here on (L4).
	recorded := h.runs.Write(r.record)
	var left error
	if r.fork != nil {
		left = r.fork.Close()
	}
	if r.owned != "" && !r.req.Keep {
		left = errors.Join(left, h.disposeFork(r.owned))
	}
	if left == nil && r.pin != "" && !r.req.Pin {
		left = h.pins.Release(r.pin)
	}
	if left != nil {
		r.record.Pending = true
		recorded = errors.Join(recorded, h.runs.Write(r.record))
		err = &PendingError{Token: "run:" + r.record.ID, What: "the run's fork could not be removed: " + left.Error(), Err: err}
	}
	return errors.Join(err, recorded)
}

// failed notes in the record that tine, not the program, ended the run.
func (r *run) failed(err error) {
	now := time.Now().UTC()
	v := Judge(err)
	status := isolate.ExitCode(err)
	if r.record.Ended == nil {
		r.record.State = record.Failed
		r.record.Ended, r.record.Status = &now, &status
	}
	r.record.Error = &record.Error{Code: v.Code, Rule: v.Rule, Summary: v.Summary}
}
