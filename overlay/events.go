package overlay

import "sync"

// Event tells whoever caches a fork that something changed behind the cache.
type Event struct {
	// Dir and Name, if Name is not empty: that entry changed (it is new, gone, or means another inode).
	Dir  uint64
	Name string
	// Ino, otherwise: that inode's attributes or contents changed.
	Ino uint64
}

// events passes invalidations on, in order, from a goroutine that holds no lock.
type events struct {
	mu    sync.Mutex
	fn    func(Event)
	queue []Event
	busy  bool
	idle  *sync.Cond
	off   bool
}

// OnInvalidate sets who is told of changes by callers without a connection and by transactions. fn is called from
// one goroutine at a time, in the order of the changes, with no lock of the fork held; it may block, the changes
// don't wait for it (FlushEvents does). Nil ends it.
func (f *Fork) OnInvalidate(fn func(Event)) {
	f.events.mu.Lock()
	defer f.events.mu.Unlock()
	f.events.fn = fn
}

// FlushEvents waits until all changes made so far have been told.
func (f *Fork) FlushEvents() {
	e := &f.events
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.busy && e.idle != nil {
		e.idle.Wait()
	}
}

func (e *events) wanted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fn != nil
}

func (e *events) send(list []Event) {
	if len(list) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fn == nil || e.off {
		return
	}
	if e.idle == nil {
		e.idle = sync.NewCond(&e.mu)
	}
	e.queue = append(e.queue, list...)
	if !e.busy {
		e.busy = true
		go e.run()
	}
}

func (e *events) run() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) > 0 && e.fn != nil && !e.off {
		list, fn := e.queue, e.fn
		e.queue = nil
		e.mu.Unlock()
		for _, ev := range list {
			fn(ev)
		}
		e.mu.Lock()
	}
	e.queue = nil
	e.busy = false
	e.idle.Broadcast()
}

// stop ends the passing on; an event that is being told may still return later.
func (e *events) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.off = true
}
