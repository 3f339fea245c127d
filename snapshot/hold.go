package snapshot

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"

	"tine/snapshot/durable"
)

// Hold is a lock on the store as a whole. While anybody has a shared one, nothing is removed from the store: it spans
// everything from the question whether a content is there already to the publication of what refers to it. gc's sweep
// has the exclusive one.
type Hold struct {
	release func() error
	once    sync.Once
	err     error
}

// Release lets go; again is harmless.
func (h *Hold) Release() error {
	h.once.Do(func() { h.err = h.release() })
	return h.err
}

// holds counts this process's shared holds of one Store, which have one flock between them.
type holds struct {
	mu    sync.Mutex
	n     int
	lock  *durable.FileLock
	excl  bool
	sweep *durable.FileLock
}

func (s *Store) lockPath() string { return s.path("lock") }

// Shared takes a shared hold, waiting for a sweep to end, at most until ctx does.
func (s *Store) Shared(ctx context.Context) (*Hold, error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	if s.holds.n == 0 {
		l, err := durable.LockContext(ctx, s.lockPath(), durable.Shared)
		if err != nil {
			return nil, fmt.Errorf("lock the store: %w", err)
		}
		s.holds.lock = l
	}
	s.holds.n++
	return &Hold{release: func() error {
		s.holds.mu.Lock()
		defer s.holds.mu.Unlock()
		if s.holds.n--; s.holds.n > 0 {
			return nil
		}
		return s.holds.lock.Unlock()
	}}, nil
}

// Exclusive takes the hold that excludes all others, in this process too, waiting at most until ctx ends.
func (s *Store) Exclusive(ctx context.Context) (*Hold, error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	l, err := durable.LockContext(ctx, s.lockPath(), durable.Exclusive)
	if err != nil {
		return nil, fmt.Errorf("lock the store: %w", err)
	}
	return &Hold{release: l.Unlock}, nil
}

// requireHold is a check against callers that forget Shared.
func (s *Store) requireHold() error {
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	if s.holds.n == 0 {
		return ErrNoHold
	}
	s.owed.Store(true)
	return nil
}

// diskID is a file's identity while it exists.
type diskID struct{ dev, ino uint64 }

func identify(st os.FileInfo) diskID {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return diskID{uint64(sys.Dev), sys.Ino}
	}
	return diskID{}
}
