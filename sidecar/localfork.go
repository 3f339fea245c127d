package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"tine/overlay"
	"tine/overlay/registry"
	"tine/snapshot/content"
	"tine/snapshot/diff"
	"tine/snapshot/image"
)

// localFork is a fork that this process has opened.
type localFork struct {
	host   *Host
	base   image.Files
	format content.ObjectFormat
	fork   *overlay.Fork

	// lock is the workspace lock (Terms): one seal or live fork at a time.
	lock sync.Mutex
	info registry.Fork // guarded by lock

	mu     sync.Mutex
	mount  *mountedFork // nil while it isn't mounted; guarded by mu
	init   int          // first process of the run that works in it, 0 without one; guarded by mu
	target string       // where that run sees it; guarded by mu
}

// openTries bounds how long a fork that is busy, but that no process admits to serve, is waited for: its server may be
// about to listen, or another command about to end.
const (
	openTries = 5 * time.Second
	openPause = 20 * time.Millisecond
)

// open opens a fork: through the process that serves it, else here. readOnly lets several commands look at once.
func (h *Host) open(ctx context.Context, f registry.Fork, readOnly bool) (Workspace, error) {
	var served *overlay.ServedError
	for start := time.Now(); ; {
		remote, err := findServer(ctx, h.path("run"), h.store.ID(), f.ID)
		if err != nil {
			return nil, err
		}
		if remote != nil {
			return remote, nil
		}
		local, err := h.openLocal(f.ID, readOnly)
		if err == nil {
			return local, nil
		}
		if !errors.As(err, &served) {
			return nil, err
		}
		if time.Since(start) > openTries {
			return nil, fmt.Errorf("%w, which doesn't answer", err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(openPause):
		}
	}
}

// holdSoon keeps servers away from a fork whose server may be about to let it go. The fork isn't opened, so it may be
// one that can't be.
func (h *Host) holdSoon(id string) (release func(), err error) {
	if err := h.makeDir("layers"); err != nil {
		return nil, err
	}
	for start := time.Now(); ; time.Sleep(openPause) {
		release, err := overlay.Hold(h.path("layers"), id)
		var served *overlay.ServedError
		if !errors.As(err, &served) || time.Since(start) > openTries {
			return release, err
		}
	}
}

// openLocal opens a fork in this process, by its full id. One that another process serves gives a *ServedError.
func (h *Host) openLocal(id string, readOnly bool) (*localFork, error) {
	for {
		f, err := h.forks.Get(id)
		if err != nil {
			return nil, err
		}
		l, err := h.openLayers(f, readOnly)
		if err != nil {
			return nil, err
		}
		// A server that rotated after the registry was read has let go of the layer that is locked now: it is closed, and
		// opening it as the live one would be wrong.
		again, err := h.forks.Get(id)
		if err == nil && slices.Equal(again.Layers, f.Layers) && again.Generation == f.Generation {
			return l, nil
		}
		if cerr := l.Close(); err != nil || cerr != nil {
			return nil, errors.Join(err, cerr)
		}
	}
}

func (h *Host) openLayers(f registry.Fork, readOnly bool) (*localFork, error) {
	if f.State != registry.Ready {
		return nil, &Refusal{Rule: "O6", Code: "being_removed", Summary: "the fork is being removed", Remedy: "finish that with tine fork rm"}
	}
	c, err := h.store.Checkpoint(f.Base)
	if err != nil {
		return nil, fmt.Errorf("base of fork %s: %w", f.ID, err)
	}
	base, err := h.store.Files(c.ID)
	if err != nil {
		return nil, err
	}
	if err := h.makeDir("layers"); err != nil {
		return nil, err
	}
	fork, err := overlay.Open(overlay.Config{
		Base: base, Contents: h.store.Contents(c), LayersDir: h.path("layers"), Layers: f.Layers, ForkID: f.ID, BaseID: f.Base, Generation: f.Generation,
		Owners: f.Owners, Limits: f.Limits, ReadOnly: readOnly, BeforeSync: h.forks.Sync, FS: h.store.FS(),
	})
	if err != nil {
		return nil, err
	}
	return &localFork{host: h, base: base, format: c.Identity.ObjectFormat, fork: fork, info: f}, nil
}

// Close ends the service: the mount, if there is one, then the fork.
func (l *localFork) Close() error {
	l.mu.Lock()
	m := l.mount
	l.mount = nil
	l.mu.Unlock()
	var err error
	if m != nil {
		l.host.unlist(l.id())
		err = m.close()
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	return errors.Join(err, l.fork.Close())
}

func (l *localFork) id() string { return l.fork.ID() }

func (l *localFork) Status(context.Context) (ForkStatus, error) {
	v, err := l.fork.View()
	if err != nil {
		return ForkStatus{}, err
	}
	defer v.Close()
	inodes, bytes := v.Counts()
	s := ForkStatus{Fork: l.id(), PID: os.Getpid(), Bytes: bytes, Inodes: inodes, Changes: l.fork.ChangeCounter()}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mount != nil {
		s.Mount = l.mount.path
	}
	s.Init, s.Target = l.init, l.target
	return s, nil
}

// changed is what a comparison with the base has to look at: inodes that nothing has touched are equal.
func changed(v *overlay.View) diff.Options {
	touched := map[uint64]bool{}
	v.Changed(func(ino uint64, _ bool) bool { touched[ino] = true; return true })
	v.ChangedEntries(func(dir uint64, _ image.Dirent) bool { touched[dir] = true; return true })
	return diff.Options{Changed: func(ino uint64) bool { return touched[ino] }}
}

func (l *localFork) Diff(ctx context.Context, req DiffRequest) (*ForkDiff, error) {
	v, err := l.fork.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	changes, err := compare(ctx, l.base, v, changed(v), req.All)
	if err != nil {
		return nil, err
	}
	return &ForkDiff{Fork: l.id(), Base: v.BaseID(), Changes: changesOf(changes)}, nil
}

func (l *localFork) Render(ctx context.Context, req RenderRequest, w io.Writer) error {
	v, err := l.fork.View()
	if err != nil {
		return err
	}
	defer v.Close()
	return render(ctx, l.base, v, l.format, changed(v), req, w)
}

func (l *localFork) Export(ctx context.Context, req ExportRequest, w io.Writer) error {
	v, err := l.fork.View()
	if err != nil {
		return err
	}
	defer v.Close()
	return exportFiles(ctx, v, req, w)
}

// Fork makes forks of this one at one instant: it goes on in a new layer, and what it was is shared.
func (l *localFork) Fork(ctx context.Context, req ForkRequest) ([]CreatedFork, error) {
	if err := l.host.checkForkNames(req); err != nil {
		return nil, err
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	c, err := l.host.store.Checkpoint(l.info.Base)
	if err != nil {
		return nil, err
	}
	n := newFork{parent: l.id(), owners: l.info.Owners}
	if l.fork.Changed() {
		v, _, err := l.rotateLocked()
		if err != nil {
			return nil, err
		}
		defer v.Close()
		n.layers = v.Layers()
	}
	return l.host.makeForks(c, req, n)
}

// rotateLocked makes the fork's state so far immutable; frozen is how long changes stood still. l.lock is held. The
// registry is told first: a layer that is recorded and has no files is empty, one that has files and isn't recorded
// would be lost.
func (l *localFork) rotateLocked() (v *overlay.View, frozen time.Duration, err error) {
	layer := overlay.NewLayerID()
	if err := l.host.forks.Rotate(l.id(), layer); err != nil {
		return nil, 0, err
	}
	start := time.Now()
	if v, err = l.fork.Rotate(layer); err != nil {
		return nil, 0, err
	}
	frozen = time.Since(start)
	l.info.Layers = append(v.Layers(), layer)
	return v, frozen, nil
}
