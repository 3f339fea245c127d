package transport

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const closedBit = 1 << 40

// Conn is one connection: a mount, or what a mount was detached from.
type Conn struct {
	loop *Loop
	fd   int
	h    Handler
	slot uint64
	done chan struct{}

	// refs counts the threads and goroutines that use fd; closedBit is set once the connection ends. Whoever makes
	// it closedBit alone closes fd.
	refs   atomic.Int64
	keep   atomic.Bool // don't close fd (Detach)
	closed bool        // fd was closed; set before done
	gone   atomic.Bool // the kernel has no connection for fd any more

	requests [numOpcodes]atomic.Uint64
	resent   atomic.Uint64
	taking   taking

	endOnce  sync.Once
	doneOnce sync.Once
	err      error // set before closedBit
}

// Done is closed when the connection has ended and no handler of it runs any more.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is why the connection ended; nil for an unmount or Close. Valid once Done is closed.
func (c *Conn) Err() error {
	<-c.done
	return c.err
}

// Gone reports whether the connection ended in the kernel: its mount went away or was aborted.
func (c *Conn) Gone() bool { return c.gone.Load() }

// Close stops reading and closes the descriptor when the handlers that run have replied. When it was the last
// descriptor of the connection, the kernel aborts the mount: callers get ENOTCONN.
func (c *Conn) Close() { c.end(nil) }

// Detach stops reading, waits until every request that was read is answered, and gives the descriptor back, open.
func (c *Conn) Detach() (fd int, err error) {
	c.keep.Store(true)
	c.end(nil)
	<-c.done
	if c.closed {
		return -1, ErrClosed
	}
	if c.err != nil {
		unix.Close(c.fd)
		return -1, c.err
	}
	return c.fd, nil
}

// Requests returns how many requests of each opcode were read, by opcode; index with the constants.
func (c *Conn) Requests() map[uint32]uint64 {
	m := make(map[uint32]uint64)
	for op := range c.requests {
		if n := c.requests[op].Load(); n > 0 {
			m[uint32(op)] = n
		}
	}
	return m
}

// Resent returns how many requests were read that had been read before.
func (c *Conn) Resent() uint64 { return c.resent.Load() }

func (c *Conn) count(op uint32) {
	if op < numOpcodes {
		c.requests[op].Add(1)
	}
}

func (c *Conn) acquire() bool {
	if c.refs.Add(1)&closedBit != 0 {
		c.release()
		return false
	}
	return true
}

func (c *Conn) release() {
	if c.refs.Add(-1) == closedBit {
		c.finish()
	}
}

func (c *Conn) closing() bool { return c.refs.Load()&closedBit != 0 }

// end begins the connection's end; the first cause counts.
func (c *Conn) end(err error) {
	c.endOnce.Do(func() {
		c.err = err
		// Before the bit: fd is still ours. Removing it twice or too late is harmless, never removing it is not,
		// because a descriptor that others hold (a keeper) would stay in the set.
		unix.EpollCtl(c.loop.epfd, unix.EPOLL_CTL_DEL, c.fd, nil)
		if c.refs.Add(closedBit) == closedBit {
			c.finish()
		}
	})
}

func (c *Conn) finish() {
	c.doneOnce.Do(func() {
		c.loop.forget(c)
		if !c.keep.Load() {
			unix.Close(c.fd)
			c.closed = true
		}
		c.h.Closed(c.err)
		close(c.done)
	})
}

// reply writes the answer of n bytes in out to msg.
func (c *Conn) reply(msg Msg, out []byte, n int) {
	op, unique := msg.Opcode(), msg.Unique()
	if noReply(op) {
		return
	}
	if unique&ResendBit != 0 {
		defer c.taking.answered()
	}
	if n < OutHeaderSize || n > len(out) {
		n = PutError(out, unique, int32(unix.EIO))
	}
	switch errno := rawWrite(c.fd, out[:n]); errno {
	case 0, unix.ENOENT:
	case unix.ENODEV, unix.EPERM:
		c.gone.Store(true)
		c.end(nil)
	default:
		c.loop.log.Error("fuse transport: the kernel refused a reply", "op", OpName(op), "bytes", n, "err", errno)
		n = PutError(out, unique, int32(unix.EIO))
		rawWrite(c.fd, out[:n])
	}
}

// handle runs the handler. A panic is EIO.
func (c *Conn) handle(msg Msg, out []byte) (n int) {
	defer func() {
		if r := recover(); r != nil {
			c.loop.log.Error("fuse transport: panic in a handler", "op", OpName(msg.Opcode()), "node", msg.Node(),
				"panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			n = 0
		}
	}()
	return c.h.Handle(msg, out)
}

// Notify sends a notification: its code and its parts. It can block until handlers have replied, so that the
// caller must hold no lock that a handler takes. ENOENT means that the kernel doesn't have the inode or the name.
func (c *Conn) Notify(code int32, parts ...[]byte) error {
	if !c.acquire() {
		return ErrClosed
	}
	defer c.release()
	var head [OutHeaderSize]byte
	iov := make([][]byte, 0, 3)
	iov = append(iov, head[:])
	n := OutHeaderSize
	for _, p := range parts {
		n += len(p)
		iov = append(iov, p)
	}
	PutNotify(head[:], code, n)
	for {
		_, err := unix.Writev(c.fd, iov)
		if err == unix.EINTR {
			continue
		}
		return err
	}
}
