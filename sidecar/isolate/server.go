package isolate

import (
	"errors"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// program is something to execute in the view.
type program struct {
	Args, Env []string
	Dir       string
	UID, GID  uint32
	Groups    []uint32
	Terminal  bool // descriptor 0 becomes the controlling terminal
}

// server is init after the view was built: it starts programs and tells the caller of their ends.
type server struct {
	control channel
	reaper  *reaper
	cfg     config
	guard   *guard
	master  *os.File
	quit    chan int
	jobs    chan func()
}

// reaper knows which children somebody asks for; all others are orphans that are only reaped.
type reaper struct {
	mu       sync.Mutex
	starting int           // programs being started, whose ids are not known yet
	waiting  map[int]int   // process id -> program's number
	early    []exitedChild // ended while something was starting
}

type exitedChild struct {
	pid    int
	status unix.WaitStatus
}

// start executes a program from the restricted thread and tells how that went.
func (s *server) start(id int, p program, files []uintptr) {
	s.reaper.mu.Lock()
	s.reaper.starting++
	s.reaper.mu.Unlock()

	pid, err := execute(p, files)

	s.reaper.mu.Lock()
	s.reaper.starting--
	if err != nil {
		s.reaper.settleLocked()
		s.reaper.mu.Unlock()
		s.control.send(message{Op: "failed", ID: id, Failure: encodeFailure(err)})
		if id == 0 {
			s.quit <- 77
		}
		return
	}
	s.reaper.waiting[pid] = id
	s.reaper.mu.Unlock()
	s.control.send(message{Op: "started", ID: id, PID: pid})

	s.reaper.mu.Lock()
	done := s.reaper.settleLocked()
	s.reaper.mu.Unlock()
	s.report(done)
}

// ended is a program's end as the caller is told.
type ended struct {
	id     int
	status unix.WaitStatus
}

// settleLocked matches early ends with programs whose ids are known by now; reaper.mu is held.
func (r *reaper) settleLocked() []ended {
	var out []ended
	for _, e := range r.early {
		if id, ok := r.waiting[e.pid]; ok {
			delete(r.waiting, e.pid)
			out = append(out, ended{id, e.status})
		}
	}
	if r.starting == 0 {
		r.early = nil
	}
	return out
}

func (s *server) report(list []ended) {
	for _, e := range list {
		m := message{Op: "exited", ID: e.id, Code: e.status.ExitStatus()}
		if e.status.Signaled() {
			m.Code, m.Signal = 0, int(e.status.Signal())
		}
		s.control.send(m)
		if e.id == 0 {
			s.quit <- 0 // the kernel kills whatever is left in this pid namespace
		}
	}
}

// reap waits for every child, the program's orphans included.
func (s *server) reap(children <-chan os.Signal) {
	for range children {
		for {
			pid, done := s.reaper.reapOne()
			if pid == 0 {
				break
			}
			s.report(done)
		}
	}
}

// reapOne waits for one child that has ended; 0 if there is none. The lock is held meanwhile, so that whoever holds it may
// signal what is in waiting without hitting a reused id.
func (r *reaper) reapOne() (int, []ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ws unix.WaitStatus
	pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WALL, nil)
	for err == unix.EINTR {
		pid, err = unix.Wait4(-1, &ws, unix.WNOHANG|unix.WALL, nil)
	}
	if err != nil || pid <= 0 {
		return 0, nil
	}
	if id, ok := r.waiting[pid]; ok {
		delete(r.waiting, pid)
		return pid, []ended{{id, ws}}
	}
	if r.starting > 0 {
		r.early = append(r.early, exitedChild{pid, ws})
	}
	return pid, nil
}

// requests serves the caller until it is gone, which ends everything.
func (s *server) requests() {
	for {
		m, files, err := s.control.receive()
		if errors.Is(err, unix.ECONNRESET) {
			continue
		}
		if err != nil {
			s.quit <- 78
			return
		}
		switch m.Op {
		case "signal":
			s.signal(m)
		case "resize":
			if s.master != nil {
				setSize(s.master, m.Rows, m.Cols)
			}
		case "guard":
			s.guard.check(m.Paths)
		case "spawn":
			s.spawn(m, files)
			continue
		}
		closeAll(files)
	}
}

// terminalSignals are those that a terminal sends to a whole process group.
var terminalSignals = map[unix.Signal]bool{
	unix.SIGINT: true, unix.SIGQUIT: true, unix.SIGHUP: true, unix.SIGTSTP: true, unix.SIGSTOP: true, unix.SIGCONT: true, unix.SIGWINCH: true,
}

func (s *server) signal(m message) {
	sig := unix.Signal(m.Signal)
	if m.All {
		unix.Kill(-1, sig)
		return
	}
	s.reaper.mu.Lock()
	defer s.reaper.mu.Unlock()
	for pid, id := range s.reaper.waiting {
		if id == m.ID {
			if terminalSignals[sig] {
				pid = -pid
			}
			unix.Kill(pid, sig)
		}
	}
}

// execute starts a program. It must be called on the restricted thread, whose bounding set, landlock domain and system
// call filter the program inherits.
func execute(p program, files []uintptr) (int, error) {
	st, err := os.Stat(p.Dir)
	if err != nil || !st.IsDir() {
		return 0, &SpecError{Field: "Dir", Problem: p.Dir + " is not a directory in the view"}
	}
	file, err := lookUp(p)
	if err != nil {
		return 0, err
	}
	attr := &syscall.ProcAttr{
		Dir: p.Dir, Env: p.Env, Files: files,
		Sys: &syscall.SysProcAttr{
			Setsid:     true,
			Setctty:    p.Terminal,
			Credential: &syscall.Credential{Uid: p.UID, Gid: p.GID, Groups: p.Groups},
		},
	}
	pid, err := syscall.ForkExec(file, p.Args, attr)
	if err != nil {
		code := 126
		if err == syscall.ENOENT || err == syscall.ENOTDIR {
			code = 127
		}
		return 0, &StartError{Program: p.Args[0], Code: code, Reason: err.Error()}
	}
	return pid, nil
}

// lookUp finds the program as execvp would, in the program's own PATH.
func lookUp(p program) (string, error) {
	name := p.Args[0]
	if strings.Contains(name, "/") {
		return name, nil // relative to Dir, which is entered first
	}
	search := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, e := range p.Env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			search = v
		}
	}
	denied := false
	for _, dir := range strings.Split(search, ":") {
		if !path.IsAbs(dir) {
			dir = path.Join(p.Dir, dir)
		}
		c := path.Join(dir, name)
		st, err := os.Stat(c)
		if err != nil || st.IsDir() {
			continue
		}
		if st.Mode()&0o111 != 0 {
			return c, nil
		}
		denied = true
	}
	if denied {
		return "", &StartError{Program: name, Code: 126, Reason: "permission denied"}
	}
	return "", &StartError{Program: name, Code: 127, Reason: "not found"}
}
