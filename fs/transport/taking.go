package transport

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// taking finds the moment in a connection's take-over when every request that the kernel handed out again is
// answered. They are at the head of the kernel's queue: once a read found another request or none, all have been
// read, and pending counts those that have no answer, together with reads in progress, whose result nobody knows.
type taking struct {
	on      atomic.Bool // from before the first read to that moment
	pending atomic.Int64
	seen    atomic.Bool // a read found the queue empty or a request that is new
	settled func()
}

// begin is called before each read; what it returns says whether read must be called after it.
func (t *taking) begin() bool {
	if !t.on.Load() {
		return false
	}
	t.pending.Add(1)
	return true
}

// read is called with a read's result. A request that was handed out again stays pending.
func (t *taking) read(errno unix.Errno, msg Msg) {
	switch {
	case errno == 0 && len(msg) >= InHeaderSize && msg.Resent():
		return
	case errno == 0, errno == unix.EAGAIN:
		t.seen.Store(true)
	}
	t.done()
}

// answered is called after the reply to a request that was handed out again.
func (t *taking) answered() {
	if t.on.Load() {
		t.done()
	}
}

func (t *taking) done() {
	if t.pending.Add(-1) == 0 && t.seen.Load() && t.on.CompareAndSwap(true, false) {
		go t.settled()
	}
}
