package isolate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Start builds the view and starts the program. When it returns an error nothing is left: no process, mount, cgroup or
// file. Cancelling ctx aborts the start; it has no effect on a program that runs (use Kill).
func Start(ctx context.Context, spec Spec) (*Process, error) {
	s, err := spec.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkPrivileges(); err != nil {
		return nil, err
	}
	if !s.Deadline.IsZero() && !time.Now().Before(s.Deadline) {
		return nil, &RefusedError{Rule: "T1", Reason: "the deadline has passed"}
	}
	hide, err := realPaths(s.Hide)
	if err != nil {
		return nil, err
	}

	p := &Process{spec: s, silent: make(chan struct{}), done: make(chan struct{}), started: make(chan error, 1), sessions: map[int]*Session{}}
	ok := false
	defer func() {
		if !ok {
			p.discard()
		}
	}()
	if p.scratch, err = newScratch(s.Scratch); err != nil {
		return nil, setupErr("make scratch directory", err)
	}
	if p.cgroup, err = newCgroup(s.Limits); err != nil {
		return nil, err
	}
	if err := p.openStdio(); err != nil {
		return nil, err
	}

	cfg := config{
		Args: s.Args, Env: s.Env, Dir: s.Dir, UID: s.UID, GID: s.GID, Groups: s.Groups, Umask: s.Umask,
		Binds: s.Binds, Files: append([]File(nil), s.Files...), Hide: hide, WritableHost: s.WritableHost,
		Network: s.Network, Home: s.Home, Hostname: s.Hostname, TTY: s.TTY,
		Stage: p.scratch.dir, Cgroup: p.cgroup.kind() != "none", V2: p.cgroup.V2 != "", Unfiltered: s.unfiltered,
	}
	for c := range p.cgroup.V1 {
		cfg.V1 = append(cfg.V1, c)
	}
	if !s.WritableHost {
		p.sockets = hostSockets()
		cfg.Sockets = p.sockets
		if real, err := filepath.EvalSymlinks(p.scratch.dir); err == nil {
			cfg.Hide = append(cfg.Hide, real)
		}
	}
	if !s.Deadline.IsZero() {
		cfg.Files = append(cfg.Files, deadlineFile(s.Deadline))
	}
	if s.TTY {
		cfg.Rows, cfg.Cols = p.terminalSize()
	}
	var extra []*os.File
	for _, w := range s.Workspaces {
		m := mountConfig{Target: w.Target, Path: w.Path, FD: -1}
		if w.Mount != nil {
			m.FD = firstMountFD + len(extra)
			extra = append(extra, w.Mount)
		}
		cfg.Workspaces = append(cfg.Workspaces, m)
	}
	if err := p.launch(cfg, extra); err != nil {
		return nil, err
	}
	if err := p.cgroup.add(p.init.Pid); err != nil {
		return nil, setupErr("enter cgroup", err)
	}
	if err := p.control.send(message{Op: "go"}); err != nil {
		return nil, p.initDied("start init", err)
	}
	go p.receive()
	select {
	case err = <-p.started:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	ok = true
	p.begun = time.Now()
	p.attach()
	go p.supervise()
	go p.watchSockets()
	return p, nil
}

// checkPrivileges refuses early what init would fail at with a less clear error.
func checkPrivileges() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return setupErr("capget", err)
	}
	for _, need := range []struct {
		bit  uint
		name string
	}{{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}, {unix.CAP_SETPCAP, "CAP_SETPCAP"}, {unix.CAP_SETUID, "CAP_SETUID"}, {unix.CAP_SETGID, "CAP_SETGID"}, {unix.CAP_CHOWN, "CAP_CHOWN"}} {
		if data[need.bit/32].Effective&(1<<(need.bit%32)) == 0 {
			return &UnsupportedError{What: "isolation", Reason: "needs " + need.name + " (run as root)"}
		}
	}
	return nil
}

// launch executes init, which then waits for "go".
func (p *Process) launch(cfg config, mounts []*os.File) error {
	exe, err := initExecutable()
	if err != nil {
		return setupErr("open own executable", err)
	}
	defer exe.Close()
	conf, err := memoryFile(cfg)
	if err != nil {
		return setupErr("write configuration", err)
	}
	defer conf.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return setupErr("make control socket", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	unix.SetNonblock(pair[0], true)
	if p.control, err = newChannel(os.NewFile(uintptr(pair[0]), "control")); err != nil {
		return setupErr("open control socket", err)
	}

	flags := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS)
	if cfg.Network == NetworkNone {
		flags |= unix.CLONE_NEWNET
	}
	// The child renumbers its descriptors before it executes exe: name it by the number that it will have.
	files := append([]*os.File{p.stdio[0], p.stdio[1], p.stdio[2], theirs, conf, exe}, mounts...)
	attr := &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"GOMAXPROCS=2"},
		Files: files,
		Sys:   &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL, Setsid: true},
	}
	result := make(chan error, 1)
	p.reaped = make(chan struct{})
	go func() {
		// PDEATHSIG is sent when the *thread* that forked ends: keep it until init is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		proc, err := os.StartProcess("/proc/self/fd/"+strconv.Itoa(exeFD), []string{initArg}, attr)
		p.init = proc
		result <- err
		if err != nil {
			close(p.reaped)
			return
		}
		p.initState, _ = proc.Wait()
		close(p.reaped)
	}()
	if err := <-result; err != nil {
		p.init = nil
		if errors.Is(err, unix.EPERM) {
			return &UnsupportedError{What: "isolation", Reason: "new namespaces: " + err.Error()}
		}
		return setupErr("start init", err)
	}
	closeAll(p.owned)
	p.owned = nil
	return nil
}

// initDied explains a broken control socket.
func (p *Process) initDied(step string, err error) error {
	select {
	case <-p.reaped:
		return &SetupError{Step: step, Reason: "init ended unexpectedly: " + p.initState.String()}
	case <-time.After(time.Second):
		return setupErr(step, err)
	}
}

// discard undoes a start that failed.
func (p *Process) discard() {
	if p.init != nil {
		p.init.Kill()
		p.cgroup.thaw()
		<-p.reaped
	}
	p.copies.abandon()
	p.cleanUp()
}

// cleanUp frees what a run had, except its processes. It may be called once.
func (p *Process) cleanUp() {
	closeAll(p.owned)
	if p.control.conn != nil {
		p.control.conn.Close()
	}
	if p.cgroup != nil {
		p.cleanErr = errors.Join(p.cleanErr, p.cgroup.remove(5*time.Second))
	}
	p.cleanErr = errors.Join(p.cleanErr, p.scratch.remove())
}
