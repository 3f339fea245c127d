package fs

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tine/fs/transport"
	"tine/snapshot/image"
)

const (
	// maxBackground requests (readahead, write-back) are in flight at once; the kernel throttles above 3/4 of it.
	maxBackground = 64
	// initSize is room in bytes for INIT and for the answer to it.
	initSize = 8 << 10
)

// session answers one connection's requests: what go-fuse doesn't know here, all else through its protocol code.
type session struct {
	face
	ps     *fuse.ProtocolServer
	iovs   sync.Pool              // of *iov
	probe  atomic.Pointer[string] // the probe's name while it is under way
	closed func(error)
}

// iov holds the arguments of one HandleRequest.
type iov struct{ in, out [1][]byte }

func newSession(f face) *session {
	s := &session{face: f}
	s.face.RawFileSystem = fuse.NewDefaultRawFileSystem()
	s.face.complaints = new(complaints)
	s.iovs.New = func() any { return new(iov) }
	opts := &fuse.MountOptions{
		Name:          subtype,
		MaxBackground: maxBackground,
		MaxWrite:      transport.DefaultMaxWrite,
		ExtraCapabilities: fuse.CAP_DONT_MASK | fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_NO_OPENDIR_SUPPORT |
			fuse.CAP_SETXATTR_EXT | fuse.CAP_HAS_RESEND | fuse.CAP_ASYNC_DIO,
		DisabledCapabilities:     fuse.CAP_PASSTHROUGH,
		EnableAcl:                true,
		EnableSymlinkCaching:     true,
		ExplicitDataCacheControl: true,
		Logger:                   log.New(logWriter{f.log}, "", 0),
		PanicHandler:             s.panicked,
	}
	s.ps = fuse.NewProtocolServer(&s.face, opts)
	return s
}

// panicked is told by go-fuse of a panic in a handler.
func (s *session) panicked(r any) fuse.Status {
	s.log.Error("fuse: panic in a handler", "fork", s.fork.ID(), "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
	return fuse.EIO
}

// logWriter takes go-fuse's own messages.
type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.log.Debug("go-fuse: " + string(bytes.TrimSpace(b)))
	return len(b), nil
}

// Handle implements transport.Handler.
func (s *session) Handle(msg transport.Msg, out []byte) int {
	if msg.Opcode() == transport.Statx {
		return s.statx(msg, out)
	}
	if n, done := s.direct(msg, out); done {
		return n
	}
	if msg.Node() == image.Root && bytes.Contains(msg, pollHack) {
		// go-fuse would answer for this name itself; it doesn't under the root's other id.
		msg.SetNode(rootAlias)
	}
	v := s.iovs.Get().(*iov)
	v.in[0], v.out[0] = msg, out
	n, _ := s.ps.HandleRequest(v.in[:], v.out[:])
	v.in[0], v.out[0] = nil, nil
	s.iovs.Put(v)
	return n
}

var pollHack = []byte(".go-fuse-epoll-hack\x00")

// Class implements transport.Handler.
func (s *session) Class(msg transport.Msg) transport.Class {
	switch msg.Opcode() {
	case transport.Lookup, transport.Getattr, transport.Statx, transport.Readdirplus, transport.Readdir,
		transport.Getxattr, transport.Listxattr, transport.Forget, transport.BatchForget, transport.Statfs,
		transport.Open, transport.Opendir, transport.Flush:
		return transport.Quick
	case transport.Fsync, transport.Fsyncdir, transport.CopyFileRange:
		return transport.Slow
	}
	return transport.Waiting
}

// Closed implements transport.Handler.
func (s *session) Closed(err error) { s.closed(err) }

// handshake answers INIT on fd, or, if somebody did that before, takes note of it. It returns the INIT message.
func (s *session) handshake(ctx context.Context, fd int, init []byte) ([]byte, error) {
	reply := len(init) == 0
	if reply {
		var err error
		if init, err = readInit(ctx, fd); err != nil {
			return nil, err
		}
	}
	if len(init) < transport.InHeaderSize || transport.Msg(init).Opcode() != transport.Init {
		return nil, fmt.Errorf("fuse: the first message is no INIT")
	}
	var out [initSize]byte
	n := s.Handle(init, out[:])
	if n <= transport.OutHeaderSize {
		return nil, fmt.Errorf("fuse: this kernel's protocol is not supported")
	}
	if reply {
		if _, err := unix.Write(fd, out[:n]); err != nil {
			return nil, fmt.Errorf("fuse: reply to INIT: %w", err)
		}
	}
	return init, nil
}

// readInit waits for the kernel's first message.
func readInit(ctx context.Context, fd int) ([]byte, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("fuse: descriptor %d: %w", fd, err)
	}
	// The kernel refuses buffers that are smaller than its smallest (8 KiB).
	b := make([]byte, 2*initSize)
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("fuse: waiting for INIT: %w", err)
		}
		n, err := unix.Read(fd, b)
		switch err {
		case nil:
			return b[:n], nil
		case unix.EAGAIN:
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			unix.Poll(p, int(100*time.Millisecond/time.Millisecond))
		case unix.EINTR, unix.ENOENT:
		default:
			return nil, fmt.Errorf("fuse: waiting for INIT: %w", err)
		}
	}
}
