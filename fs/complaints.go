package fs

import (
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
