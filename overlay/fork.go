package overlay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tine/snapshot/content"
	"tine/snapshot/durable"
	"tine/snapshot/image"
)

// Caller is who asks for a change.
type Caller struct {
	UID   uint32 // as the fork shows owners
	GID   uint32
	PID   uint32
	Umask uint32 // applied to new inodes where the directory has no default ACL
	// Groups gives the supplementary groups; nil means none. It is only called where an answer depends on it.
	Groups func() []uint32
	// Conn is the FUSE connection that the request came by; zero for callers whose changes the kernel doesn't know
	// of, and who therefore cause invalidation events.
	Conn [16]byte
	// Unique is the request's id; 0 keeps no reply. A request that isn't idempotent and is marked as Resent is
	// answered with the reply that was recorded, if there is one, and not done again.
	Unique uint64
	Resent bool
}

// inGroup reports whether the caller belongs to gid (as the fork shows it).
func (c *Caller) inGroup(gid uint32) bool {
	if c.GID == gid {
		return true
	}
	if c.Groups == nil {
		return false
	}
	for _, g := range c.Groups() {
		if g == gid {
			return true
		}
	}
	return false
}

// Limits bound what a fork may add to its base. Zero means no limit.
type Limits struct {
	Bytes  int64 `json:"bytes,omitempty"`  // of file contents and reservations made in the fork
	Inodes int64 `json:"inodes,omitempty"` // made in the fork
}

// Config says what a fork is and where its changes are kept.
type Config struct {
	// Base is the tree below; it must stay open and unchanged.
	Base image.Tree
	// Contents opens the base's contents. It must be comparable (a pointer).
	Contents content.Opener
	// LayersDir holds the layers, one folder each. It must exist.
	LayersDir string
	// Layers are the fork's layers, the oldest first; the last one is the live one. None of their files needs to
	// exist: a layer's files are made by its first change.
	Layers []LayerID
	// ForkID and BaseID are recorded in the journals and checked when they are opened again.
	ForkID string
	BaseID string
	// Generation counts resets of the fork; it is recorded in every record.
	Generation uint64
	Owners     OwnerMap
	Limits     Limits
	// ReadOnly opens for reading alone: nothing is made, every change is EROFS.
	ReadOnly bool
	// KeepOrphans keeps inodes without a name, for a server that takes a mount over; see Orphans. Otherwise they end.
	KeepOrphans bool
	// BeforeSync, if set, is called before a layer's first sync: it makes durable what names this fork (the registry).
	BeforeSync func() error

	FS  durable.FS        // nil: the operating system's
	Now func() image.Time // nil: the clock
	// BootID overrides the machine's boot id; for tests of what a power cut leaves.
	BootID [16]byte
}

// Fork is a writable view of a base. All methods are safe for concurrent use.
type Fork struct {
	// immutable
	cfg    Config
	fs     durable.FS
	owners OwnerMap
	boot   [16]byte
	lock   *forkLock
	table  []*layer // only the last element is ever added to; guarded by mu for adding, readers copy the slice

	gate   gate
	events events

	// turn is held by a transaction, rotation or closing: parks of the gate nest, these don't.
	turn sync.Mutex

	// syncMu serialises syncs.
	syncMu sync.Mutex
	synced uint64 // last durable sequence number; guarded by syncMu

	mu sync.RWMutex
	// guarded by mu
	unsync   []unsynced
	w        writer // the live state and what appends for it
	log      log    // the live layer's files
	space    *space
	limits   Limits
	broken   error // why nothing can be appended any more
	closed   bool
	txn      bool // a transaction is in progress: forgets wait
	forgets  []uint64
	replies  replies
	counter  atomic.Uint64 // changes so far; see ChangeCounter
	reclaims atomic.Bool   // a reclaim runs

	replayBytes  int64 // of journals that a restart would read, without the live one
	replayLayers int
	background   sync.WaitGroup // writers of trees and reclaims
}

// unsynced is a closed layer whose files may not be on disk yet.
type unsynced struct {
	l    *layer
	data bool
}

// Open opens a fork: it replays its layers. A fork that another process or another Fork of this one serves gives a
// *ServedError; damage gives a *CorruptError.
func Open(cfg Config) (*Fork, error) {
	f, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	if err := f.load(); err != nil {
		f.discard()
		return nil, err
	}
	return f, nil
}

// prepare makes a fork without a state and takes its lock.
func prepare(cfg Config) (*Fork, error) {
	if cfg.Base == nil || cfg.LayersDir == "" || len(cfg.Layers) == 0 || cfg.ForkID == "" {
		return nil, fmt.Errorf("fork %q: base, layers directory, a layer and an id are needed", cfg.ForkID)
	}
	seen := make(map[LayerID]bool, len(cfg.Layers))
	for _, id := range cfg.Layers {
		if id.IsZero() || seen[id] {
			return nil, fmt.Errorf("fork %s: layer %s is zero or named twice", cfg.ForkID, id)
		}
		seen[id] = true
	}
	if cfg.FS == nil {
		cfg.FS = durable.OS
	}
	if cfg.Now == nil {
		cfg.Now = now
	}
	f := &Fork{gate: gate{drained: make(chan struct{}, 1)}, cfg: cfg, fs: cfg.FS, owners: cfg.Owners, limits: cfg.Limits, boot: cfg.BootID, space: new(space)}
	if f.boot == ([16]byte{}) {
		var err error
		if f.boot, err = bootID(); err != nil {
			return nil, err
		}
	}
	lock, err := lockFork(cfg.LayersDir, cfg.ForkID, cfg.ReadOnly)
	if err != nil {
		return nil, err
	}
	f.lock = lock
	useContents(cfg.Contents)
	for _, id := range cfg.Layers {
		f.table = append(f.table, openLayer(f.fs, cfg.LayersDir, id))
	}
	return f, nil
}

func now() image.Time {
	t := time.Now()
	return image.Time{Sec: t.Unix(), Nsec: uint32(t.Nanosecond())}
}

// discard gives back what prepare took.
func (f *Fork) discard() {
	f.log.close()
	for _, l := range f.table {
		l.release()
	}
	doneContents(f.cfg.Contents)
	f.lock.unlock()
}

// Close ends the fork. Changes wait for nothing and get EBADF afterwards; what was acknowledged is in the journal
// already, so Close doesn't sync.
func (f *Fork) Close() error {
	if err := f.gate.park(context.Background()); err != nil {
		return err
	}
	defer f.gate.unpark()
	f.turn.Lock()
	defer f.turn.Unlock()
	f.syncMu.Lock()
	f.mu.Lock()
	was := f.closed
	var err error
	if !was {
		err = f.w.flushPending()
	}
	f.closed = true
	f.mu.Unlock()
	f.syncMu.Unlock() // the background may wait for it
	if was {
		return nil
	}
	f.events.stop()
	f.background.Wait()
	for f.space.reads.active[0].Load()+f.space.reads.active[1].Load() > 0 {
		time.Sleep(50 * time.Microsecond)
	}
	f.discard()
	return err
}

// ID is the fork's id; Base the tree below it.
func (f *Fork) ID() string       { return f.cfg.ForkID }
func (f *Fork) Base() image.Tree { return f.cfg.Base }

// Layers lists the fork's layers, the oldest first.
func (f *Fork) Layers() []LayerID {
	f.mu.RLock()
	defer f.mu.RUnlock()
	ids := make([]LayerID, len(f.table))
	for i, l := range f.table {
		ids[i] = l.id
	}
	return ids
}

// Park is the write barrier: it stops changes before they begin and waits until those in progress have ended. Reads
// go on. Each successful Park needs an Unpark; they nest.
func (f *Fork) Park(ctx context.Context) error { return f.gate.park(ctx) }

// Unpark ends one Park.
func (f *Fork) Unpark() {
	f.gate.unpark()
	f.flushForgets()
}

// ChangeCounter changes with every change, and with nothing else: equal counters mean an equal fork. It counts from
// the opening of the fork.
func (f *Fork) ChangeCounter() uint64 { return f.counter.Load() }

// SetLimits replaces the limits from now on.
func (f *Fork) SetLimits(l Limits) {
	f.mu.Lock()
	f.limits = l
	f.mu.Unlock()
}

// Changed reports whether the fork differs from its base at all.
func (f *Fork) Changed() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.w.s.nodes.Len() > 0 || f.w.s.names.Len() > 0
}
