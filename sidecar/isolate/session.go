package isolate

import (
	"context"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// SessionSpec is a further program in the view of a run (tine runs exec). It has the run's environment where a field is
// empty, its own standard streams, and no terminal of its own unless one of the descriptors is one.
type SessionSpec struct {
	Args, Env []string
	Dir       string
	Files     [3]*os.File // nil: /dev/null
}

// Session is such a program.
type Session struct {
	p       *Process
	id      int
	started chan error
	done    chan struct{}
	once    sync.Once

	code, signal int // set before done is closed
}

// spawnReq travels in a memory file, after the three standard descriptors.
type spawnReq struct {
	Args, Env []string
	Dir       string
}

// Spawn starts a further program. It ends at the latest when the run does.
func (p *Process) Spawn(ctx context.Context, spec SessionSpec) (*Session, error) {
	if len(spec.Args) == 0 {
		return nil, &SpecError{Field: "Args", Problem: "no program named"}
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, setupErr("open /dev/null", err)
	}
	defer null.Close()
	var fds []int
	for i, f := range spec.Files {
		if f == nil {
			f = null
		} else if err := passable([]string{"standard input", "standard output", "standard error"}[i], f); err != nil {
			return nil, err
		}
		fds = append(fds, int(f.Fd()))
	}
	request, err := memoryFile(spawnReq{spec.Args, spec.Env, spec.Dir})
	if err != nil {
		return nil, setupErr("write request", err)
	}
	defer request.Close()
	fds = append(fds, int(request.Fd()))
	s := &Session{p: p, started: make(chan error, 1), done: make(chan struct{})}
	p.mu.Lock()
	p.nextID++
	s.id = p.nextID
	if p.sessions == nil {
		p.mu.Unlock()
		return nil, ErrEnded
	}
	p.sessions[s.id] = s
	p.mu.Unlock()
	if err := p.control.send(message{Op: "spawn", ID: s.id}, fds...); err != nil {
		p.forget(s)
		return nil, ErrEnded
	}
	select {
	case err := <-s.started:
		if err != nil {
			return nil, err
		}
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Wait returns the exit status: the program's, or 128+n.
func (s *Session) Wait() int {
	<-s.done
	if s.signal != 0 {
		return 128 + s.signal
	}
	return s.code
}

// Signal is Process.Signal for a session.
func (s *Session) Signal(sig unix.Signal) error {
	return s.p.tell(message{Op: "signal", ID: s.id, Signal: int(sig)})
}

func (p *Process) forget(s *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, s.id)
}

// sessionMessage handles what init says about a session.
func (p *Process) sessionMessage(m message) {
	p.mu.Lock()
	s := p.sessions[m.ID]
	p.mu.Unlock()
	if s == nil {
		return
	}
	switch m.Op {
	case "started":
		s.started <- nil
	case "failed":
		p.forget(s)
		err := error(&SetupError{Step: "start program", Reason: "no reason given"})
		if m.Failure != nil {
			err = m.Failure.decode()
		}
		s.started <- err
	case "exited":
		p.forget(s)
		s.end(m.Code, m.Signal)
	}
}

func (s *Session) end(code, sig int) {
	s.once.Do(func() {
		s.code, s.signal = code, sig
		close(s.done)
	})
}

// endSessions tells all sessions that init is gone, and their programs with it.
func (p *Process) endSessions() {
	p.mu.Lock()
	all := p.sessions
	p.sessions = nil
	p.mu.Unlock()
	for _, s := range all {
		select {
		case s.started <- errors.Join(ErrEnded):
		default:
		}
		s.end(0, int(unix.SIGKILL))
	}
}

// spawn is init's side of Spawn. It owns the descriptors.
func (s *server) spawn(m message, files []*os.File) {
	if len(files) != 4 || m.ID == 0 {
		closeAll(files)
		return
	}
	var req spawnReq
	if err := readMemoryFile(files[3], &req); err != nil || len(req.Args) == 0 {
		closeAll(files)
		return
	}
	p := program{Args: req.Args, Env: req.Env, Dir: req.Dir, UID: s.cfg.UID, GID: s.cfg.GID, Groups: s.cfg.Groups}
	if p.Env == nil {
		p.Env = s.cfg.Env
	}
	if p.Dir == "" {
		p.Dir = s.cfg.Dir
	}
	s.jobs <- func() {
		s.start(m.ID, p, []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()})
		closeAll(files)
	}
}
