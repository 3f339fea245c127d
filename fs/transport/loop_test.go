package transport

import (
	"encoding/binary"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeHandler answers with the errno that the node id says, after block lets it.
type fakeHandler struct {
	class  Class
	handle func(Msg, []byte) int
	closed chan error
}

func (h *fakeHandler) Handle(m Msg, out []byte) int { return h.handle(m, out) }
func (h *fakeHandler) Class(Msg) Class              { return h.class }
func (h *fakeHandler) Closed(err error)             { h.closed <- err }

func ok(m Msg, out []byte) int { return PutError(out, m.Unique(), 0) }

// kernel is the other side of a connection, a seqpacket socket, which keeps messages apart as /dev/fuse does.
type kernel struct {
	t  *testing.T
	fd int
}

func start(t *testing.T, threads int, h *fakeHandler) (*Loop, *Conn, kernel) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[1]) })
	unix.SetsockoptTimeval(p[1], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
	l, err := New(Options{Threads: threads, MaxWrite: 128 << 10, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	h.closed = make(chan error, 1)
	c, err := l.Add(p[0], func(*Conn) Handler { return h })
	if err != nil {
		t.Fatal(err)
	}
	return l, c, kernel{t, p[1]}
}

func (k kernel) send(op uint32, unique, node uint64, body ...byte) {
	k.t.Helper()
	m := make([]byte, InHeaderSize+len(body))
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	binary.NativeEndian.PutUint32(m[4:], op)
	binary.NativeEndian.PutUint64(m[8:], unique)
	binary.NativeEndian.PutUint64(m[16:], node)
	copy(m[InHeaderSize:], body)
	if _, err := unix.Write(k.fd, m); err != nil {
		k.t.Fatalf("send: %v", err)
	}
}

func (k kernel) receive() (unique uint64, errno int32) {
	k.t.Helper()
	var b [1024]byte
	n, err := unix.Read(k.fd, b[:])
	if err != nil || n < OutHeaderSize {
		k.t.Fatalf("receive: %d bytes, %v", n, err)
	}
	return binary.NativeEndian.Uint64(b[8:]), -int32(binary.NativeEndian.Uint32(b[4:]))
}

func TestEveryRequestIsAnsweredOnce(t *testing.T) {
	_, c, k := start(t, 2, &fakeHandler{handle: ok})
	const n = 5000
	window := make(chan struct{}, 64) // a socket's buffer is finite, unlike the kernel's patience with replies
	go func() {
		for i := range n {
			window <- struct{}{}
			k.send(Getattr, uint64(2*i), 1)
		}
	}()
	seen := make(map[uint64]bool)
	for range n {
		u, errno := k.receive()
		<-window
		if errno != 0 || seen[u] {
			t.Fatalf("unique %d: errno %d, answered before: %v", u, errno, seen[u])
		}
		seen[u] = true
	}
	if got := c.Requests()[Getattr]; got != n {
		t.Errorf("%d requests counted, want %d", got, n)
	}
}

func TestInterruptIsSwallowed(t *testing.T) {
	_, _, k := start(t, 1, &fakeHandler{handle: func(m Msg, out []byte) int {
		if m.Opcode() == Interrupt {
			t.Error("the handler saw an INTERRUPT")
		}
		return ok(m, out)
	}})
	k.send(Interrupt, 3, 0, make([]byte, 8)...)
	k.send(Getattr, 4, 1)
	if u, _ := k.receive(); u != 4 {
		t.Fatalf("reply to %d, want only one to 4", u)
	}
}

func TestPanicIsEIO(t *testing.T) {
	_, _, k := start(t, 1, &fakeHandler{handle: func(m Msg, out []byte) int {
		if m.Node() == 7 {
			panic("broken")
		}
		return ok(m, out)
	}})
	k.send(Getattr, 2, 7)
	if u, errno := k.receive(); u != 2 || errno != int32(unix.EIO) {
		t.Fatalf("reply %d errno %d", u, errno)
	}
	k.send(Getattr, 4, 1)
	if u, errno := k.receive(); u != 4 || errno != 0 {
		t.Fatalf("after the panic: reply %d errno %d", u, errno)
	}
}

// However many handlers block, requests go on being read and answered.
func TestBlockedHandlersDontStopReading(t *testing.T) {
	for _, class := range []Class{Waiting, Slow} {
		release := make(chan struct{})
		var blocked atomic.Int32
		_, _, k := start(t, 2, &fakeHandler{
			class: class,
			handle: func(m Msg, out []byte) int {
				if m.Node() == 9 {
					blocked.Add(1)
					<-release
				}
				return ok(m, out)
			},
		})
		const n = 50
		for i := range n {
			k.send(Getattr, uint64(100+i), 9)
		}
		for deadline := time.Now().Add(5 * time.Second); blocked.Load() < n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("only %d of %d requests were read", blocked.Load(), n)
			}
		}
		k.send(Getattr, 2, 1)
		if u, _ := k.receive(); u != 2 {
			t.Fatalf("reply to %d, want 2", u)
		}
		close(release)
		for range n {
			k.receive()
		}
	}
}

func TestDetachAnswersWhatWasRead(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	_, c, k := start(t, 1, &fakeHandler{
		class: Slow,
		handle: func(m Msg, out []byte) int {
			close(entered)
			<-release
			return ok(m, out)
		},
	})
	k.send(Fsync, 2, 1)
	<-entered
	time.AfterFunc(20*time.Millisecond, func() { close(release) })
	fd, err := c.Detach()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if u, _ := k.receive(); u != 2 {
		t.Fatalf("reply to %d, want 2", u)
	}
	k.send(Getattr, 4, 1)
	var b [256]byte
	if n, err := unix.Read(fd, b[:]); err != nil || Msg(b[:n]).Unique() != 4 {
		t.Fatalf("the request after Detach is not in the descriptor: %d bytes, %v", n, err)
	}
}

func TestCloseEndsConnection(t *testing.T) {
	h := &fakeHandler{handle: ok}
	l, c, k := start(t, 2, h)
	c.Close()
	if err := <-h.closed; err != nil {
		t.Fatalf("Closed(%v)", err)
	}
	<-c.Done()
	if err := c.Notify(IncEpoch); err != ErrClosed {
		t.Errorf("Notify after Close: %v", err)
	}
	var b [64]byte
	if n, err := unix.Read(k.fd, b[:]); n != 0 && err == nil {
		t.Errorf("the descriptor is still open: %d, %v", n, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Add(k.fd, func(*Conn) Handler { return h }); err != ErrClosed {
		t.Errorf("Add after Close: %v", err)
	}
}

func TestLargeRequestKeepsItsBytes(t *testing.T) {
	type seen struct {
		n    int
		last byte
	}
	got := make(chan seen, 2)
	_, _, k := start(t, 1, &fakeHandler{
		class: Slow,
		handle: func(m Msg, out []byte) int {
			time.Sleep(5 * time.Millisecond)
			got <- seen{len(m), m[len(m)-1]}
			return ok(m, out)
		},
	})
	unix.SetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<20)
	for i := range 2 {
		body := make([]byte, 100<<10)
		body[len(body)-1] = byte(i + 1)
		k.send(Write, uint64(i), 1, body...)
	}
	sum := byte(0)
	for range 2 {
		s := <-got
		if s.n != InHeaderSize+100<<10 {
			t.Fatalf("%d bytes", s.n)
		}
		sum += s.last
		k.receive()
	}
	if sum != 3 {
		t.Errorf("one request overwrote the other: %d", sum)
	}
}

// After a take-over the settled call comes when all that was handed out again is answered, and not before.
func TestTakeOverSettles(t *testing.T) {
	for _, class := range []Class{Quick, Waiting, Slow} {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(p[1])
		unix.SetsockoptTimeval(p[1], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
		l, err := New(Options{Threads: 2, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		k := kernel{t, p[1]}
		const n = 20
		for i := range n {
			k.send(Mkdir, uint64(i)|ResendBit, 1)
		}
		k.send(Getattr, 1000, 1)
		release, settled := make(chan struct{}), make(chan struct{})
		var left atomic.Int32
		left.Store(n)
		h := &fakeHandler{class: class, closed: make(chan error, 1), handle: func(m Msg, out []byte) int {
			if m.Resent() {
				if class != Quick {
					<-release
				}
				left.Add(-1)
			}
			return ok(m, out)
		}}
		c, err := l.TakeOver(p[0], func(*Conn) Handler { return h }, func() {
			if left.Load() != 0 {
				t.Errorf("class %d: settled with %d requests to answer", class, left.Load())
			}
			close(settled)
		})
		if err != nil {
			t.Fatal(err)
		}
		var b [64]byte
		if m, err := unix.Read(k.fd, b[:]); err != nil || m != OutHeaderSize || b[4] != Resend {
			t.Fatalf("no request to resend: %v", b[:max(m, 0)])
		}
		if class != Quick {
			select {
			case <-settled:
				t.Error("settled before the answers")
			case <-time.After(20 * time.Millisecond):
			}
			close(release)
		}
		for range n + 1 {
			k.receive()
		}
		select {
		case <-settled:
		case <-time.After(5 * time.Second):
			t.Fatalf("class %d: never settled", class)
		}
		if c.Resent() != n {
			t.Errorf("%d resent requests counted", c.Resent())
		}
	}
}
