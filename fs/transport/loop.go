package transport

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// fairness is how many requests of one connection a thread answers before it looks at others.
const fairness = 128

// Options of a Loop. The zero value is right for most.
type Options struct {
	// Threads that answer requests, beside the one that is in reserve. 0: one for each CPU that the process may
	// use, at most 8.
	Threads int
	// MaxWrite is the largest WRITE payload in bytes that any connection negotiates. 0: DefaultMaxWrite.
	MaxWrite int
	// Log takes what has no caller to be returned to. nil: slog.Default().
	Log *slog.Logger
}

// DefaultMaxWrite (1 MiB) is the most that the kernel sends in one WRITE.
const DefaultMaxWrite = 1 << 20

// Handler answers the requests of one connection. Its methods are called by many goroutines at once.
type Handler interface {
	// Handle answers one request. out has room for the largest answer that the request can have; the result is the
	// length of the reply in it, 0 when there is none. msg and out must not be kept.
	Handle(msg Msg, out []byte) int
	// Class says where a request is answered. It must be quick.
	Class(msg Msg) Class
	// Closed is called once, after the last Handle: with nil when the mount went away or Close was called, else
	// with what reading failed with.
	Closed(err error)
}

// Class of a request, by what its handler may wait for.
type Class uint8

const (
	// Quick requests wait for nothing but the processor and short locks. While one is answered, other requests of
	// the same connection that came in the same instant may stay unread.
	Quick Class = iota
	// Waiting requests can wait, for a disk or at a barrier, but seldom do. Another thread is told of the requests
	// behind them first.
	Waiting
	// Slow requests are expected to wait (a fetch, a sync, a large copy) and never hold a reading thread.
	Slow
)

// Loop serves connections until Close. Safe for concurrent use.
type Loop struct {
	epfd    int
	wake    int // eventfd that ends the threads
	threads int32
	inSize  int
	log     *slog.Logger

	busy atomic.Int32 // threads inside a handler
	wg   sync.WaitGroup

	mu     sync.Mutex
	table  table
	closed bool
}

// New starts a loop's threads.
func New(opt Options) (*Loop, error) {
	if opt.Threads <= 0 {
		opt.Threads = min(processors(), 8)
	}
	if opt.MaxWrite <= 0 {
		opt.MaxWrite = DefaultMaxWrite
	}
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("transport: epoll_create: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epfd)
		return nil, fmt.Errorf("transport: eventfd: %w", err)
	}
	l := &Loop{epfd: epfd, wake: wake, threads: int32(opt.Threads) + 1, inSize: opt.MaxWrite + 4096, log: opt.Log}
	// Level-triggered: every thread sees it. Slot 0 is never a connection's.
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		unix.Close(epfd)
		unix.Close(wake)
		return nil, fmt.Errorf("transport: epoll_ctl: %w", err)
	}
	for range l.threads {
		l.wg.Go(l.run)
	}
	return l, nil
}

// processors is GOMAXPROCS as it was before the first loop, which raises it by its threads: a thread that waits for
// the kernel keeps its processor until the runtime's monitor takes it away, and what a handler does in the kernel
// meanwhile would find none to come back to. A GOMAXPROCS in the environment is left as it is.
var processors = sync.OnceValue(func() int {
	n := runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(n + min(n, 8) + 1)
	}
	return n
})

// ErrClosed is returned for a loop or a connection that was closed.
var ErrClosed = errors.New("transport is closed")

// Close ends every connection and the threads, and waits for them.
func (l *Loop) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	conns := l.table.all()
	l.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	for _, c := range conns {
		<-c.done
	}
	var one = [8]byte{1}
	if _, err := unix.Write(l.wake, one[:]); err != nil {
		return fmt.Errorf("transport: eventfd: %w", err)
	}
	l.wg.Wait()
	unix.Close(l.wake)
	return unix.Close(l.epfd)
}

// Add begins to serve fd, a /dev/fuse descriptor whose INIT is done, and owns it from then on (not on error). It
// is made non-blocking. handler is called before the first request is read.
func (l *Loop) Add(fd int, handler func(*Conn) Handler) (*Conn, error) {
	return l.add(fd, handler, nil)
}

// TakeOver is Add for a connection whose earlier server is dead. The kernel is asked to hand out again what that
// one had read and not answered; settled is called once, from a goroutine, when all of it is answered.
func (l *Loop) TakeOver(fd int, handler func(*Conn) Handler, settled func()) (*Conn, error) {
	var msg [OutHeaderSize]byte
	PutNotify(msg[:], Resend, len(msg))
	if _, err := unix.Write(fd, msg[:]); err != nil {
		return nil, fmt.Errorf("transport: resend: %w", err)
	}
	return l.add(fd, handler, settled)
}

func (l *Loop) add(fd int, handler func(*Conn) Handler, settled func()) (*Conn, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("transport: descriptor %d: %w", fd, err)
	}
	c := &Conn{loop: l, fd: fd, done: make(chan struct{})}
	if settled != nil {
		c.taking.settled = settled
		c.taking.on.Store(true)
	}
	c.h = handler(c)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, ErrClosed
	}
	ok := l.table.put(c)
	l.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("transport: too many connections: %w", unix.EMFILE)
	}
	if err := unix.EpollCtl(l.epfd, unix.EPOLL_CTL_ADD, fd, c.event()); err != nil {
		l.forget(c)
		return nil, fmt.Errorf("transport: epoll_ctl: %w", err)
	}
	return c, nil
}

func (l *Loop) forget(c *Conn) {
	l.mu.Lock()
	l.table.drop(c.slot)
	l.mu.Unlock()
}

// run is one thread.
func (l *Loop) run() {
	runtime.LockOSThread()
	b := &buffers{in: make([]byte, l.inSize)}
	var ev [1]unix.EpollEvent
	for {
		n, err := unix.EpollWait(l.epfd, ev[:], -1)
		if err == unix.EINTR || err == nil && n == 0 {
			continue
		}
		if err != nil {
			l.log.Error("fuse transport: epoll_wait", "err", err)
			return
		}
		slot := eventSlot(&ev[0])
		if slot == 0 {
			return
		}
		c := l.table.get(slot)
		if c == nil || !c.acquire() {
			continue // an event that was on its way when the connection ended
		}
		l.drain(c, b)
		c.release()
	}
}

// drain answers what is waiting at c.
func (l *Loop) drain(c *Conn, b *buffers) {
	for range fairness {
		if c.closing() {
			return
		}
		taking := c.taking.begin()
		n, errno := rawRead(c.fd, b.in)
		if taking {
			c.taking.read(errno, b.in[:max(n, 0)])
		}
		switch errno {
		case 0:
		case unix.EAGAIN:
			return
		case unix.EINTR, unix.ENOENT:
			continue
		case unix.ENODEV:
			c.gone.Store(true)
			c.end(nil)
			return
		default:
			c.end(fmt.Errorf("transport: read of a request: %w", errno))
			return
		}
		if n < InHeaderSize {
			c.end(fmt.Errorf("transport: a request of %d bytes", n))
			return
		}
		if l.dispatch(c, b, n) {
			return
		}
	}
	l.rearm(c)
}

// rearm makes a new event if c has requests that nobody has read.
func (l *Loop) rearm(c *Conn) {
	if err := unix.EpollCtl(l.epfd, unix.EPOLL_CTL_MOD, c.fd, c.event()); err != nil && !c.closing() {
		c.end(fmt.Errorf("transport: epoll_ctl: %w", err))
	}
}

// dispatch answers the request in b.in[:n], here or in a goroutine. It is true if c was re-armed after the request
// was read, so that whatever comes next has an event of its own.
func (l *Loop) dispatch(c *Conn, b *buffers, n int) (rearmed bool) {
	msg := Msg(b.in[:n])
	op := msg.Opcode()
	c.count(op)
	if msg.Resent() {
		c.resent.Add(1)
	}
	if op == Interrupt {
		return false
	}
	if class := c.h.Class(msg); class != Slow {
		if l.busy.Add(1) < l.threads {
			if class == Waiting {
				l.rearm(c)
				rearmed = true
			}
			out := b.reply(msg.replySize())
			size := c.handle(msg, out)
			// Before the reply, which wakes its caller, often in this thread's place: the caller's next requests would
			// find one thread after the other busy with no more than this.
			l.busy.Add(-1)
			c.reply(msg, out, size)
			return rearmed
		}
		l.busy.Add(-1)
	}
	// Whatever was read is answered, also when the connection ends meanwhile; this thread's own reference makes
	// another one safe.
	c.refs.Add(1)
	t := b.detach(n, l.inSize)
	go func() {
		out := takeReply(t.msg.replySize())
		c.reply(t.msg, out.b, c.handle(t.msg, out.b))
		out.give()
		t.give()
		c.release()
	}()
	return false
}
