package sidecar

import (
	"context"
	"time"

	"tine/overlay"
	"tine/overlay/seal"
	"tine/snapshot"
)

// Seal turns the fork at one instant into a checkpoint. What a fork is at that instant is a copy of two pointers; writers
// stand still for that only, and hashing comes after (F5).
func (l *localFork) Seal(ctx context.Context, req SealRequest) (*SealReceipt, error) {
	h := l.host
	if err := h.checkName(req.Name, req.Force); err != nil {
		return nil, err
	}
	start := time.Now()
	l.lock.Lock()
	defer l.lock.Unlock()
	receipt := &SealReceipt{Schema: "tine.seal/v1", Fork: l.id(), Base: l.info.Base, Name: req.Name}
	v, err := l.instantLocked(ctx, req, receipt)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	base, err := h.store.Checkpoint(l.info.Base)
	if err != nil {
		return nil, err
	}
	sealed := seal.Result{Checkpoint: base}
	if untouched := len(v.Layers()) == 1 && !l.fork.Changed(); !untouched {
		detail := map[string]string{"freezer": receipt.Freezer}
		if req.Run != "" {
			detail["run"] = req.Run
		}
		sealed, err = seal.View(ctx, h.store, v, seal.Options{Provenance: snapshot.Provenance{Kind: "seal", Source: l.id(), Detail: detail}})
		if err != nil {
			return nil, err
		}
	}
	receipt.Checkpoint, receipt.Changed = sealed.Checkpoint.ID, sealed.Changed
	if receipt.Tree, err = h.store.TreeID(ctx, receipt.Checkpoint); err != nil {
		return nil, err
	}
	changes, err := compare(ctx, l.base, v, changed(v), false)
	if err != nil {
		return nil, err
	}
	receipt.ChangedFiles = CountFiles(changesOf(changes))
	if err := h.finish(receipt.Checkpoint, req.Name, req.Force, req.Labels); err != nil {
		return nil, err
	}
	receipt.Seconds = time.Since(start).Seconds()
	return receipt, nil
}

// instantLocked chooses the freezer and takes the fork's state. l.lock is held.
func (l *localFork) instantLocked(ctx context.Context, req SealRequest, receipt *SealReceipt) (*overlay.View, error) {
	l.mu.Lock()
	m := l.mount
	l.mu.Unlock()
	if m == nil || req.Quiet {
		receipt.Freezer, receipt.Covers = "none", true
		if m != nil {
			if err := m.flush(ctx); err != nil {
				return nil, err
			}
		}
		return l.fork.View()
	}
	// What was stored to mapped pages before is written back as far as it goes; the barrier doesn't cover stores after.
	receipt.Freezer = "barrier"
	if err := m.flush(ctx); err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if !l.fork.Changed() {
		return l.fork.View()
	}
	v, frozen, err := l.rotateLocked()
	receipt.FrozenUS = frozen.Microseconds()
	return v, err
}
