package sidecar

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// controlServer lets other processes reach the forks of this one.
type controlServer struct {
	path     string // of the socket
	store    string // identity
	listener net.Listener
	server   *http.Server

	mu    sync.Mutex
	forks map[string]*servedFork
}

// servedFork is a fork under its full id, and how to end its service.
type servedFork struct {
	Workspace
	unserve func()
}

// startControl listens in dir (STORE/run), which is made if it doesn't exist.
func startControl(dir, store string) (*controlServer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	// A socket's address has at most 107 bytes, a store's path any number: the directory is named by descriptor.
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	defer d.Close()
	var random [6]byte
	rand.Read(random[:])
	name := fmt.Sprintf("%d-%s.sock", os.Getpid(), hex.EncodeToString(random[:]))
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the descriptor in its name is closed by then
	c := &controlServer{path: filepath.Join(dir, name), store: store, listener: l, forks: map[string]*servedFork{}}
	c.server = &http.Server{
		Handler:           c.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, peerUID(conn))
		},
	}
	go func() {
		if err := c.server.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			slog.Error("control socket", "err", err)
		}
	}()
	return c, nil
}

// add makes a fork reachable; unserve is called, once, when a client asks to end its service.
func (c *controlServer) add(id string, w Workspace, unserve func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forks[id] = &servedFork{w, unserve}
}

func (c *controlServer) remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.forks, id)
}

// close stops listening, cancels what is being answered and removes the socket.
func (c *controlServer) close() {
	os.Remove(c.path)
	c.server.Close()
}

type peerKey struct{}

// peerUID is who connected; -1 when it can't be told.
func peerUID(conn net.Conn) int {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return -1
	}
	uid := -1
	raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = int(cred.Uid)
		}
	})
	return uid
}

func (c *controlServer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /control", func(w http.ResponseWriter, _ *http.Request) {
		hello := Hello{Protocol: ControlVersion, Oldest: ControlOldest, PID: os.Getpid(), Store: c.store, Forks: []string{}}
		c.mu.Lock()
		for id := range c.forks {
			hello.Forks = append(hello.Forks, id)
		}
		c.mu.Unlock()
		sendJSON(w, hello)
	})
	mux.HandleFunc("GET /v1/forks", c.guard(func(w http.ResponseWriter, r *http.Request) error {
		list := []ForkStatus{}
		c.mu.Lock()
		forks := slices.Collect(maps.Values(c.forks))
		c.mu.Unlock()
		for _, f := range forks {
			s, err := f.Status(r.Context())
			if err != nil {
				return err
			}
			list = append(list, s)
		}
		return sendJSON(w, list)
	}))
	mux.HandleFunc("GET /v1/forks/{id}", c.fork(func(w http.ResponseWriter, r *http.Request, f *servedFork) error {
		return answer(w, r, nil, func() (any, error) { return f.Status(r.Context()) })
	}))
	mux.HandleFunc("POST /v1/forks/{id}/diff", c.fork(func(w http.ResponseWriter, r *http.Request, f *servedFork) error {
		var req DiffRequest
		return answer(w, r, &req, func() (any, error) { return f.Diff(r.Context(), req) })
	}))
	mux.HandleFunc("POST /v1/forks/{id}/seal", c.fork(func(w http.ResponseWriter, r *http.Request, f *servedFork) error {
		var req SealRequest
		return answer(w, r, &req, func() (any, error) { return f.Seal(r.Context(), req) })
	}))
	mux.HandleFunc("POST /v1/forks/{id}/fork", c.fork(func(w http.ResponseWriter, r *http.Request, f *servedFork) error {
		var req ForkRequest
		return answer(w, r, &req, func() (any, error) { return f.Fork(r.Context(), req) })
	}))
	mux.HandleFunc("POST /v1/forks/{id}/render", c.fork(func(w http.ResponseWriter, r *http.Request, f *servedFork) error {
		var req RenderRequest
		return stream(w, r, &req, func(out io.Writer) error { return f.Render(r.Context(), req, out) })
	}))
	mux.HandleFunc("POST /v1/forks/{id}/export", c.fork(func(w http.ResponseWriter, r *http.Request, f *servedFork) error {
		var req ExportRequest
		return stream(w, r, &req, func(out io.Writer) error { return f.Export(r.Context(), req, out) })
	}))
	mux.HandleFunc("POST /v1/forks/{id}/unserve", c.fork(func(w http.ResponseWriter, r *http.Request, f *servedFork) error {
		if f.unserve == nil {
			return &Refusal{Rule: "serving", Code: "in_use", Summary: "a run works in this fork"}
		}
		f.unserve()
		return sendJSON(w, struct{}{})
	}))
	return mux
}

// guard checks who asks, in which version, and turns a handler's error into an answer.
func (c *controlServer) guard(handle func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if uid, _ := r.Context().Value(peerKey{}).(int); uid != 0 && uid != os.Geteuid() {
			sendError(w, http.StatusForbidden, unix.EPERM)
			return
		}
		if v, err := strconv.Atoi(r.Header.Get(controlHeader)); err != nil || v < ControlOldest || v > ControlVersion {
			sendError(w, http.StatusUpgradeRequired, fmt.Errorf("%w: it speaks versions %d to %d, the request has %q",
				ErrControl, ControlOldest, ControlVersion, r.Header.Get(controlHeader)))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, controlMaxRequest)
		if err := handle(w, r); err != nil {
			sendError(w, http.StatusConflict, err)
		}
	}
}

// fork is guard for a request about one of the forks that are served here.
func (c *controlServer) fork(handle func(http.ResponseWriter, *http.Request, *servedFork) error) http.HandlerFunc {
	return c.guard(func(w http.ResponseWriter, r *http.Request) error {
		id := r.PathValue("id")
		c.mu.Lock()
		f := c.forks[id]
		c.mu.Unlock()
		if f == nil {
			return &NotFoundError{Kind: "served fork", Ref: id}
		}
		return handle(w, r, f)
	})
}

func sendJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}

func readRequest(r *http.Request, req any) error {
	if req == nil {
		return nil
	}
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields() // a newer client's option that we would ignore
	if err := dec.Decode(req); err != nil {
		return fmt.Errorf("%w: request: %w", ErrControl, err)
	}
	return nil
}

func answer(w http.ResponseWriter, r *http.Request, req any, do func() (any, error)) error {
	if err := readRequest(r, req); err != nil {
		return err
	}
	v, err := do()
	if err != nil {
		return err
	}
	return sendJSON(w, v)
}

// stream answers with bytes. An error before the first byte is an ordinary one; one after it goes into the trailer,
// so that a client never takes half for the whole.
func stream(w http.ResponseWriter, r *http.Request, req any, do func(io.Writer) error) error {
	if err := readRequest(r, req); err != nil {
		return err
	}
	w.Header().Set("Trailer", trailerError)
	w.Header().Set("Content-Type", "application/octet-stream")
	out := &firstWrite{w: w}
	err := do(out)
	if err != nil && !out.begun {
		w.Header().Del("Trailer")
		return err
	}
	if err != nil {
		w.Header().Set(trailerError, Inert(err.Error()))
	} else {
		w.Header().Set(trailerError, trailerDone)
	}
	return nil
}

const (
	trailerError = "Tine-Error"
	trailerDone  = "none"
)

type firstWrite struct {
	w     io.Writer
	begun bool
}

func (f *firstWrite) Write(p []byte) (int, error) {
	f.begun = true
	return f.w.Write(p)
}
