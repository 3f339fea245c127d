package fs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tine/fs/transport"
	"tine/overlay"
)

// Conn is one connection that a Server answers.
type Conn struct {
	// immutable once served
	server *Server
	tc     *transport.Conn
	face   *session
	fork   *overlay.Fork
	log    *slog.Logger
	id     [16]byte
	minor  uint32
	init   []byte

	orphans orphans
}

// orphanDelay lets the inodes of a removal of many files be asked for together, on a thread that the removal doesn't
// need.
const orphanDelay = 2 * time.Millisecond

// orphans are inodes without a name that the kernel may have let go, and the goroutine that asks it.
type orphans struct {
	sync.Mutex
	queue []uint64
	busy  bool
}

// ID names the connection in recorded replies.
func (c *Conn) ID() [16]byte { return c.id }

// Init is the kernel's INIT message, which a later server needs to take the mount over.
func (c *Conn) Init() []byte { return slices.Clone(c.init) }

// Minor is the connection's number in fusectl.
func (c *Conn) Minor() uint32 { return c.minor }

// Done is closed when the session has ended, because the mount went away or by Close or Detach, and none of its
// handlers runs any more. The fork can be closed then.
func (c *Conn) Done() <-chan struct{} { return c.tc.Done() }

// Wait waits for Done and tells why the session ended: nil for an unmount, Close and Detach.
func (c *Conn) Wait() error { return c.tc.Err() }

// Close stops serving. Unless somebody else holds the descriptor, the mount's users get ENOTCONN.
func (c *Conn) Close() { c.tc.Close() }

// Detach stops serving, answers what was read, and gives the descriptor back, for another server.
func (c *Conn) Detach() (fd int, err error) { return c.tc.Detach() }

// Requests counts the requests read so far by the kernel's name of the operation.
func (c *Conn) Requests() map[string]uint64 {
	m := make(map[string]uint64)
	for op, n := range c.tc.Requests() {
		m[transport.OpName(op)] = n
	}
	return m
}

// Resent counts requests that an earlier server had read.
func (c *Conn) Resent() uint64 { return c.tc.Resent() }

// Waiting is the number of requests without an answer; see the function Waiting.
func (c *Conn) Waiting() (int, error) { return Waiting(c.minor) }

// Abort ends the mount for all who use it; see the function Abort.
func (c *Conn) Abort() error { return Abort(c.minor) }

// Quiet waits until no request is without an answer. With the mount's users frozen, nothing comes later.
func (c *Conn) Quiet(ctx context.Context) error {
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, time.Millisecond) {
		n, err := c.Waiting()
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d requests without an answer: %w", n, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// Sync makes the kernel write back what programs have stored to mapped pages, and waits until it has arrived. path
// names a directory of the mount, below the descriptor root, or is absolute with root -1. While programs go on writing
// it ends only with ctx.
//
// This process must not do that itself, nor anything else on its own mount that it may be killed at: see outsider.
func (c *Conn) Sync(ctx context.Context, root int, path string) error {
	if err := c.server.outsider.do(doSync, root, path); err != nil {
		return err
	}
	return c.Quiet(ctx)
}

// invalidate passes a change that the kernel didn't make on to it. It is called by the engine's event goroutine.
func (c *Conn) invalidate(e overlay.Event) {
	var err error
	if e.Name != "" {
		err = c.invalEntry(e.Dir, e.Name)
	} else {
		err = c.invalInode(e.Ino, 0)
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT): // not cached
	case errors.Is(err, transport.ErrClosed), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOTCONN):
	default:
		c.log.Warn("fuse: invalidation", "fork", c.fork.ID(), "dir", e.Dir, "name", e.Name, "inode", e.Ino, "err", err)
	}
}

// invalEntry drops a name, positive or negative, and the directory's listing.
func (c *Conn) invalEntry(dir uint64, name string) error {
	b := make([]byte, 16+len(name)+1)
	binary.NativeEndian.PutUint64(b, dir)
	binary.NativeEndian.PutUint32(b[8:], uint32(len(name)))
	copy(b[16:], name)
	return c.tc.Notify(transport.InvalEntry, b)
}

// invalInode drops attributes and, with off >= 0, data from there on (a directory's listing, a symlink's target).
func (c *Conn) invalInode(ino uint64, off int64) error {
	var b [24]byte
	binary.NativeEndian.PutUint64(b[:], ino)
	binary.NativeEndian.PutUint64(b[8:], uint64(off))
	return c.tc.Notify(transport.InvalInode, b[:])
}

// forgot queues inodes without a name; handlers call it.
func (c *Conn) forgot(ino ...uint64) {
	if len(ino) == 0 {
		return
	}
	o := &c.orphans
	o.Lock()
	defer o.Unlock()
	o.queue = append(o.queue, ino...)
	if !o.busy {
		o.busy = true
		time.AfterFunc(orphanDelay, c.releaseOrphans)
	}
}

// releaseOrphans runs in a goroutine of its own; it ends queued inodes that the kernel doesn't know any more.
func (c *Conn) releaseOrphans() {
	o := &c.orphans
	for {
		o.Lock()
		list := o.queue
		o.queue = nil
		if len(list) == 0 {
			o.busy = false
			o.Unlock()
			return
		}
		o.Unlock()
		for _, ino := range list {
			// Only attributes are dropped, so that asking is harmless.
			if err := c.invalInode(ino, -1); err == unix.ENOENT {
				c.fork.Forget(ino)
			}
		}
	}
}

// ended is called once, after the last handler.
func (c *Conn) ended(error) {
	c.fork.OnInvalidate(nil)
	if c.tc.Gone() {
		// The kernel holds nothing any more.
		for _, ino := range c.fork.Orphans() {
			c.fork.Forget(ino)
		}
	}
}
