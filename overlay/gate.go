package overlay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// gate is the write barrier: every change passes it, and while it is parked changes wait before they have done
// anything. Reading never waits.
type gate struct {
	in    atomic.Int64 // changes in progress
	parks atomic.Int64
	// drained has a token when the last change has left while parked. It is made with the fork.
	drained chan struct{}

	mu     sync.Mutex
	reopen chan struct{} // closed when the last park ends; not nil while parked
}

func (g *gate) enter() {
	for {
		g.in.Add(1)
		if g.parks.Load() == 0 {
			return
		}
		g.leave()
		g.mu.Lock()
		ch := g.reopen
		g.mu.Unlock()
		if ch != nil {
			<-ch
		}
	}
}

func (g *gate) leave() {
	if g.in.Add(-1) == 0 && g.parks.Load() > 0 {
		select {
		case g.drained <- struct{}{}:
		default:
		}
	}
}

// park stops new changes and waits for those in progress. Parks nest; each needs an unpark, unless ctx ended first.
func (g *gate) park(ctx context.Context) error {
	g.mu.Lock()
	if g.parks.Add(1) == 1 {
		g.reopen = make(chan struct{})
	}
	g.mu.Unlock()
	// The token can go to another waiter, so it only shortens the wait.
	for wait := 50 * time.Microsecond; g.in.Load() > 0; wait = min(2*wait, 5*time.Millisecond) {
		t := time.NewTimer(wait)
		select {
		case <-g.drained:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			g.unpark()
			return ctx.Err()
		}
		t.Stop()
	}
	return nil
}

func (g *gate) unpark() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.parks.Add(-1) == 0 {
		close(g.reopen)
		g.reopen = nil
	}
}
