package sidecar

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"tine/fs"
	"tine/overlay/registry"
	"tine/sidecar/isolate"
)

// mountedFork is a fork's mount. It is detached, reachable by its descriptor alone, until it is attached at path.
type mountedFork struct {
	ws   *fs.Workspace
	path string // "" while detached
}

// close ends the mount wherever it is, also under those who use it.
func (m *mountedFork) close() error {
	var err error
	if m.path != "" {
		err = fs.Unmount(m.path)
		if errors.Is(err, fs.ErrNotMounted) { // somebody else has unmounted it
			err = nil
		}
	} else {
		m.ws.Mounted.Close()
	}
	m.ws.Conn.Close()
	<-m.ws.Conn.Done()
	return err
}

// flush makes the kernel write back what programs have stored to mapped pages, and waits for it. syncfs starts that,
// the count of unanswered requests tells when it is over.
func (m *mountedFork) flush(ctx context.Context) error {
	root, path := m.ws.FD(), "."
	if m.path != "" {
		root, path = -1, m.path
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if err := m.ws.Conn.Sync(ctx, root, path); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// flushTime bounds the wait for write-back. Writers that go on keep the count of requests above zero.
const flushTime = 2 * time.Second

// mountDetached serves the fork on a mount that nobody sees yet, and lists it for other processes.
func (l *localFork) mountDetached(ctx context.Context, unserve func()) error {
	server, err := l.host.fileServer()
	if err != nil {
		return err
	}
	ws, err := server.Mount(ctx, l.fork, fs.MountOptions{Source: "tine:" + shortID(l.id())}, fs.ConnOptions{})
	if err != nil {
		return err
	}
	m := &mountedFork{ws: ws}
	if err := l.host.list(l, unserve); err != nil {
		return errors.Join(err, m.close())
	}
	l.mu.Lock()
	l.mount = m
	l.mu.Unlock()
	return nil
}

// fileServer is this process's file server, started at its first use.
func (h *Host) fileServer() (*fs.Server, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.files == nil {
		s, err := fs.NewServer(fs.Options{})
		if err != nil {
			return nil, err
		}
		h.files = s
	}
	return h.files, nil
}

// list makes a fork reachable for other processes.
func (h *Host) list(l *localFork, unserve func()) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.control == nil {
		c, err := startControl(h.path("run"), h.store.ID())
		if err != nil {
			return err
		}
		h.control = c
	}
	h.control.add(l.id(), l, unserve)
	return nil
}

func (h *Host) unlist(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.control != nil {
		h.control.remove(id)
	}
}

// MountRequest says what to mount where, and hears of it.
type MountRequest struct {
	Fork string
	Dir  string
	// Ready is called once the mount can be used.
	Ready func(Mounted) error
	// Note hears what people may want to know.
	Note func(string)
}

// Mounted tells of a mount that can be used.
type Mounted struct {
	Fork, Path string
	PID        int
}

// Mount serves a fork at a directory until it is unmounted, ctx ends, or another process asks for the end. A mount of
// tine's whose server is dead is replaced; any other mount at the directory is a refusal.
func (h *Host) Mount(ctx context.Context, req MountRequest) error {
	f, err := h.findFork(req.Fork)
	if err != nil {
		return err
	}
	dir, err := mountPoint(req)
	if err != nil {
		return err
	}
	w, err := h.open(ctx, f, false)
	if err != nil {
		return err
	}
	l, ok := w.(*localFork)
	if !ok {
		defer w.Close()
		s, err := w.Status(ctx)
		if err != nil {
			return err
		}
		return servedRefusal(f, s)
	}
	asked, ask := context.WithCancel(ctx)
	defer ask()
	err = l.serveAt(asked, dir, ask, req.Ready)
	return errors.Join(err, l.Close())
}

func (l *localFork) serveAt(ctx context.Context, dir string, unserve func(), ready func(Mounted) error) error {
	if err := l.mountDetached(ctx, unserve); err != nil {
		return err
	}
	l.mu.Lock()
	m := l.mount
	l.mu.Unlock()
	if err := m.ws.Attach(dir); err != nil {
		return err
	}
	// The descriptor of the mount would keep umount from working.
	m.ws.Mounted.Close()
	l.mu.Lock()
	m.path = dir
	l.mu.Unlock()
	if ready != nil {
		if err := ready(Mounted{Fork: l.id(), Path: dir, PID: os.Getpid()}); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case <-m.ws.Conn.Done():
		return m.ws.Conn.Wait()
	}
}

// mountPoint checks the directory to mount at, and clears away a dead mount of tine's there.
func mountPoint(req MountRequest) (string, error) {
	dir, err := filepath.Abs(req.Dir)
	if err != nil {
		return "", err
	}
	// What a dead server's mount had cached is still there for stat; statfs always asks.
	var sf unix.Statfs_t
	for unix.Statfs(dir, &sf) == unix.ENOTCONN {
		if uerr := fs.Unmount(dir); uerr != nil {
			return "", uerr
		}
		if req.Note != nil {
			req.Note("a mount whose server was gone is replaced at " + dir)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", fmt.Errorf("%w: %w", fs.ErrMountPoint, &os.PathError{Op: "mount", Path: req.Dir, Err: err})
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "", fmt.Errorf("%w: %w", fs.ErrMountPoint, &os.PathError{Op: "mount", Path: req.Dir, Err: unix.ENOTDIR})
	}
	return filepath.EvalSymlinks(dir)
}

// service is a fork in which a run's program works.
type service struct {
	Workspace
	id    string
	local *localFork // nil where another process serves it
	path  string     // where the host has it mounted, ""
	mount *os.File   // the mount's descriptor, nil where path is set
	owned bool       // the run's own: its end is the end of whoever else is in it
}

// serve opens a fork that nobody serves and mounts it for a run.
func (h *Host) serve(ctx context.Context, f registry.Fork, owned bool) (*service, error) {
	l, err := h.openLocal(f.ID, false)
	if err != nil {
		return nil, err
	}
	return l.forRun(ctx, owned)
}

func (l *localFork) forRun(ctx context.Context, owned bool) (*service, error) {
	if err := l.mountDetached(ctx, nil); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fd, err := unix.FcntlInt(uintptr(l.mount.ws.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &service{Workspace: l, id: l.id(), local: l, mount: os.NewFile(uintptr(fd), "workspace"), owned: owned}, nil
}

// join opens a fork for a program beside whoever uses it already.
func (h *Host) join(ctx context.Context, f registry.Fork) (*service, error) {
	w, err := h.open(ctx, f, false)
	if err != nil {
		return nil, err
	}
	if l, ok := w.(*localFork); ok {
		return l.forRun(ctx, false)
	}
	s := &service{Workspace: w, id: f.ID}
	status, err := w.Status(ctx)
	switch {
	case err != nil:
	case status.Mount != "":
		s.path = status.Mount
	case status.Init != 0:
		s.mount, err = cloneMount(status.Init, status.Target)
	default:
		err = &Refusal{Rule: "serving", Code: "served", Summary: "another process serves the fork and has it mounted nowhere yet", Remedy: "try again"}
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return s, nil
}

// workspace is how the program gets to see the fork.
func (s *service) workspace() isolate.Workspace {
	return isolate.Workspace{Target: workspaceDir, Path: s.path, Mount: s.mount}
}

// readErrors counts files of the fork that could not be read on this process's mount.
func (s *service) readErrors() int {
	if s.local == nil {
		return 0
	}
	s.local.mu.Lock()
	defer s.local.mu.Unlock()
	return s.local.mount.ws.Conn.ReadErrors()
}

// setInit tells other processes which run works in the fork.
func (s *service) setInit(pid int) {
	if s.local == nil {
		return
	}
	s.local.mu.Lock()
	defer s.local.mu.Unlock()
	s.local.init, s.local.target = pid, ""
	if pid != 0 {
		s.local.target = workspaceDir
	}
}

// Close ends the run's use of the fork. Of a fork that isn't the run's own, others may be users still: they are waited
// for, since this process answers them.
func (s *service) Close() error {
	if s.mount != nil {
		s.mount.Close()
	}
	if s.local != nil && !s.owned {
		s.local.mu.Lock()
		m := s.local.mount
		s.local.mu.Unlock()
		m.ws.Mounted.Close()
		<-m.ws.Conn.Done()
	}
	return s.Workspace.Close()
}
