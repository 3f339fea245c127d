package fs

import (
	"sync"
	"sync/atomic"
	"time"
)

// complaintsPerSecond bounds what one session logs of its errors: a program that reads a thousand files whose
// contents are missing says nothing new after the first few.
const complaintsPerSecond = 10

// complaints decides which errors of a session are logged.
type complaints struct {
	second  atomic.Int64 // the Unix second that n counts in
	n       atomic.Int64
	dropped atomic.Int64

	mu     sync.Mutex
	unread map[uint64]bool // files that could not be read; at most maxUnread
}

// maxUnread bounds what a session remembers of files that could not be read.
const maxUnread = 1 << 20

// unreadable notes that a program got EIO for what is in a file. The kernel asks again, so it counts once.
func (c *complaints) unreadable(ino uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unread == nil {
		c.unread = map[uint64]bool{}
	}
	if len(c.unread) < maxUnread {
		c.unread[ino] = true
	}
}

// ReadErrors is how many files of the mount could not be read so far: their contents are missing or damaged.
func (c *Conn) ReadErrors() int {
	q := c.face.complaints
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.unread)
}

// next reports whether an error is logged, and how many before it were not.
func (c *complaints) next() (ok bool, dropped int64) {
	now := time.Now().Unix()
	if old := c.second.Load(); old != now && c.second.CompareAndSwap(old, now) {
		c.n.Store(0)
	}
	if c.n.Add(1) > complaintsPerSecond {
		c.dropped.Add(1)
		return false, 0
	}
	return true, c.dropped.Swap(0)
}
