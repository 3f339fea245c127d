package fs

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"tine/fs/transport"
	"tine/overlay"
)

// Options of a Server. The zero value is right for most.
type Options struct {
	// Threads that answer requests; 0: one for each CPU, at most 8.
	Threads int
	// Log takes what can't be returned to a caller; nil: slog.Default().
	Log *slog.Logger
}

// Server serves any number of mounts of forks from one set of threads.
type Server struct {
	loop     *transport.Loop
	log      *slog.Logger
	outsider outsider
}

// NewServer starts the threads, and a process beside this one (see outsider).
func NewServer(opt Options) (*Server, error) {
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	loop, err := transport.New(transport.Options{Threads: opt.Threads, Log: opt.Log})
	if err != nil {
		return nil, err
	}
	s := &Server{loop: loop, log: opt.Log}
	go s.outsider.warm()
	return s, nil
}

// Close ends all sessions and the threads. Mounts whose descriptor nobody else holds end with it.
func (s *Server) Close() error {
	s.outsider.stop(true)
	return s.loop.Close()
}

// ConnOptions are how a fork is served on one connection.
type ConnOptions struct {
	// ID names the connection in recorded replies. Zero: a random one, and no replies are recorded.
	ID [16]byte
	// Minor is the connection's number in fusectl (Mounted.Minor); 0: unknown, so that Waiting and Abort don't work.
	Minor uint32
	// Root, if not 0, is a descriptor of the mount's root (Mounted.FD) by which the first probe is made. Without
	// it the kernel goes on asking for OPEN until somebody opens a file.
	Root int
	// Timeout for INIT; 0: 10 s.
	Timeout time.Duration
}

// Serve answers for fork on fd, a /dev/fuse descriptor, which it owns from now on, and closes on error. init nil: the
// mount is new, INIT is read and answered. Else init is the INIT message that somebody answered before: the mount is
// taken over from a server that must be dead. Then the kernel is asked to hand out again what has no answer before
// anything is read.
func (s *Server) Serve(ctx context.Context, fd int, init []byte, fork *overlay.Fork, opt ConnOptions) (*Conn, error) {
	if opt.Timeout == 0 {
		opt.Timeout = 10 * time.Second
	}
	unix.CloseOnExec(fd)
	c := &Conn{server: s, minor: opt.Minor, fork: fork, log: s.log, id: opt.ID}
	replies := c.id != [16]byte{}
	if !replies {
		rand.Read(c.id[:])
	}
	c.face = newSession(face{
		fork: fork, log: s.log, conn: c.id, replies: replies,
		forgot: func(ino uint64) { c.forgot(ino) },
	})
	c.face.closed = c.ended
	ictx, cancel := context.WithTimeout(ctx, opt.Timeout)
	defer cancel()
	var err error
	if c.init, err = c.face.handshake(ictx, fd, init); err != nil {
		unix.Close(fd)
		return nil, err
	}
	handler := func(tc *transport.Conn) transport.Handler {
		c.tc = tc
		fork.OnInvalidate(c.invalidate)
		return wrapHandler(c.face)
	}
	if init == nil {
		_, err = s.loop.Add(fd, handler)
	} else {
		// FORGETs that the dead server had read are lost, so that all orphans are probed; but not before the kernel
		// knows those whose making was not answered yet.
		_, err = s.loop.TakeOver(fd, handler, func() { c.forgot(fork.Orphans()...) })
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	if opt.Root != 0 && init == nil {
		if err := c.face.settle(&s.outsider, opt.Root); err != nil {
			c.Close()
			return nil, errors.Join(err, c.Wait())
		}
	}
	return c, nil
}

// wrapHandler lets tests come between.
var wrapHandler = func(h transport.Handler) transport.Handler { return h }

// Workspace is a mounted fork and its session.
type Workspace struct {
	*Mounted
	Conn *Conn
}

// Mount makes a mount of fork that is served and settled, and not attached yet (Attach).
func (s *Server) Mount(ctx context.Context, fork *overlay.Fork, opt MountOptions, copt ConnOptions) (*Workspace, error) {
	m, err := Mount(ctx, opt)
	if err != nil {
		return nil, err
	}
	copt.Minor, copt.Root = m.Minor, m.FD()
	c, err := s.Serve(ctx, m.takeDev(), nil, fork, copt)
	if err != nil {
		m.Close()
		return nil, err
	}
	return &Workspace{Mounted: m, Conn: c}, nil
}

// Close takes the mount away and ends its session: what still uses it gets ENOTCONN. It waits until no handler runs
// any more, so that the fork can be closed.
func (m *Workspace) Close() error {
	err := m.Detach()
	m.Mounted.Close()
	m.Conn.Close()
	<-m.Conn.Done()
	return err
}
