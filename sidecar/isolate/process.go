package isolate

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a program that was started, and everything around it.
//
// Its goroutines: the launcher keeps init's parent thread alive; receive reads the control socket; supervise waits for the
// end, enforces the deadline and cleans up; watchSockets looks for what is new on the host; copiers move standard input and output.
type Process struct {
	// Immutable after Start.
	spec    Spec
	scratch scratch
	cgroup  *Cgroup
	control channel
	init    *os.Process
	reaped  chan struct{} // closed when init was waited for; initState is then set
	report  Report
	begun   time.Time
	sockets []string // of the host, at the start

	initState *os.ProcessState

	// Owned by Start, then by supervise.
	stdio    [3]*os.File // what init gets
	owned    []*os.File  // closed once init has them
	master   *os.File    // the terminal, if any
	copies   copiers
	cleanErr error

	started chan error    // one value: nil or why the program wasn't started
	silent  chan struct{} // closed when init has said its last word
	done    chan struct{} // closed when status and err are final

	mu       sync.Mutex
	pid      int  // the program's, in the view
	ended    bool // init said that the program ended, or is gone
	expired  bool
	code     int
	signal   int
	status   Status
	err      error
	nextID   int
	sessions map[int]*Session
}

// Report describes the view.
func (p *Process) Report() Report { return p.report }

// Cgroup returns the run's control group.
func (p *Process) Cgroup() *Cgroup { return p.cgroup }

// InitPID is the process id of the view's process 1 on the host; /proc/PID/root is the view.
func (p *Process) InitPID() int { return p.init.Pid }

// Done is closed when Wait won't block any more.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns when the program and all its descendants are gone, output is copied and everything is removed. The error
// is about tine's own failures (a control group that couldn't be removed, say); the program's is in the status.
func (p *Process) Wait() (Status, error) {
	<-p.done
	return p.status, p.err
}

// Signal passes a signal on, as the kernel would: those that a terminal makes go to the program's process group, others
// to the program.
func (p *Process) Signal(sig unix.Signal) error {
	return p.tell(message{Op: "signal", Signal: int(sig)})
}

// SignalAll signals every process of the run.
func (p *Process) SignalAll(sig unix.Signal) error {
	return p.tell(message{Op: "signal", Signal: int(sig), All: true})
}

// Resize sets the size of the program's terminal.
func (p *Process) Resize(rows, cols uint16) error {
	return p.tell(message{Op: "resize", Rows: rows, Cols: cols})
}

func (p *Process) tell(m message) error {
	select {
	case <-p.done:
		return ErrEnded
	default:
	}
	if err := p.control.send(m); err != nil {
		return ErrEnded
	}
	return nil
}

// Suspend is what a caller does on SIGTSTP when the program has no terminal of its own: it stops the program, then this
// very process, and returns after both were continued. A stopped caller serves no workspace; a program left running would
// hang in it.
func (p *Process) Suspend() error {
	if err := p.SignalAll(unix.SIGSTOP); err != nil {
		return err
	}
	// To this very thread: it then is stopped before it goes on, whichever thread the kernel would have picked.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP); err != nil {
		return err
	}
	return p.SignalAll(unix.SIGCONT)
}

// Kill ends all processes of the run at once, also frozen ones.
func (p *Process) Kill() {
	p.init.Kill()
	p.cgroup.kill()
}

// receive handles what init says until it is gone.
func (p *Process) receive() {
	defer close(p.silent)
	begun := false
	for {
		m, files, err := p.control.receive()
		if errors.Is(err, unix.ECONNRESET) { // it ended with something of ours unread; its own words come next
			continue
		}
		if err != nil {
			break
		}
		switch {
		case m.Op == "ready" && !begun:
			if m.Report != nil {
				p.report = *m.Report
				p.report.Cgroup = p.cgroup.kind()
			}
			if len(files) == 1 {
				p.master, files = files[0], nil
			}
		case m.Op == "started" && m.ID == 0:
			p.mu.Lock()
			p.pid = m.PID
			p.mu.Unlock()
			begun = true
			p.started <- nil
		case m.Op == "failed" && m.ID == 0 && m.Failure != nil:
			begun = true
			p.started <- m.Failure.decode()
		case m.Op == "exited" && m.ID == 0:
			p.mu.Lock()
			p.ended, p.code, p.signal = true, m.Code, m.Signal
			p.mu.Unlock()
		case m.ID != 0:
			p.sessionMessage(m)
		}
		closeAll(files)
	}
	if !begun {
		p.started <- p.initDied("start program", errors.New("init hung up"))
	}
	p.endSessions()
}

// supervise waits for the end.
func (p *Process) supervise() {
	p.enforceDeadline()
	<-p.reaped
	<-p.silent
	// Process 1 is gone, so all others are; only now is output complete.
	oom := p.cgroup.oomKilled()
	p.copies.finish()
	p.cleanUp()

	p.mu.Lock()
	st := Status{Code: p.code, Started: p.begun, Elapsed: time.Since(p.begun), OOMKilled: oom, Expired: p.expired}
	ended := p.ended
	if p.signal != 0 {
		st.Signal, st.Code = unix.Signal(p.signal), 128+p.signal
	}
	p.mu.Unlock()
	if !ended { // init was killed, by Kill or by the kernel
		st.Signal, st.Code = unix.SIGKILL, 128+int(unix.SIGKILL)
		if ws, ok := p.initState.Sys().(interface{ ExitStatus() int }); ok && p.initState.Exited() {
			p.cleanErr = errors.Join(p.cleanErr, fmt.Errorf("isolate: init ended with status %d", ws.ExitStatus()))
		}
	}
	if st.Expired {
		st.Code = 124
	}
	p.status, p.err = st, p.cleanErr
	close(p.done)
}

// ticks is how often the clock on the wall is compared with a deadline: timers don't count the time that a machine was
// suspended, and T1's deadline does.
const ticks = time.Second

// enforceDeadline returns when init is gone or has been killed for the deadline (T1: SIGTERM, the grace, SIGKILL).
func (p *Process) enforceDeadline() {
	if p.spec.Deadline.IsZero() {
		return
	}
	deadline := p.spec.Deadline.Round(0)
	if !p.sleepUntil(deadline) {
		return
	}
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return
	}
	p.expired = true
	p.mu.Unlock()
	p.SignalAll(unix.SIGTERM)
	if p.sleepUntil(time.Now().Round(0).Add(p.spec.Grace)) {
		p.Kill()
	}
}

// sleepUntil returns false when init ended first.
func (p *Process) sleepUntil(t time.Time) bool {
	for {
		left := t.Sub(time.Now().Round(0))
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(min(left, ticks))
		select {
		case <-p.reaped:
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// deadlineFile is what T1 lets the program read.
func deadlineFile(t time.Time) File {
	return File{Path: "/run/tine/deadline", Data: fmt.Appendf(nil, "%d\n", t.Unix()), Mode: 0o444}
}
