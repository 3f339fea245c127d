package isolate

import (
	"os"
	"os/signal"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The main goroutine of init stays on the process's first thread: namespaces and filters belong to threads, and what
// others see under /proc/1 is that thread.
func init() {
	if isInit() {
		runtime.LockOSThread()
	}
}

func isInit() bool { return len(os.Args) > 0 && os.Args[0] == initArg && os.Getpid() == 1 }

// MaybeInit is to be called first in main, and in TestMain of tests that call Start. In a process that Start made as init
// it doesn't return; in all others it does nothing. A program that calls the binary by init's name gains nothing.
func MaybeInit() {
	if isInit() {
		os.Exit(runInit())
	}
}

// runInit is process 1 of a view. Its exit status is seen only when something goes wrong.
func runInit() int {
	// Whatever the caller inherited and never knew of stays here.
	unix.CloseRange(controlFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	// The program may run as the same user: it must not read this process's memory or descriptors.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 70
	}
	unix.Umask(0)
	if name, err := unix.BytePtrFromString(initArg); err == nil {
		unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
	}
	control, err := newChannel(os.NewFile(controlFD, "control"))
	if err != nil {
		return 71
	}
	cfg, err := readConfig(os.NewFile(configFD, "config"))
	unix.Close(exeFD)
	if err != nil {
		return 72
	}
	r := &reaper{waiting: map[int]int{}}
	// Every signal is caught, so that nobody in the view can end process 1 by one; on a channel of its own, so that a flood
	// of others can't displace SIGCHLD.
	signal.Notify(make(chan os.Signal, 1))
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)

	if m, _, err := control.receive(); err != nil || m.Op != "go" {
		return 73
	}
	v, master, slave, err := setUp(cfg)
	if err != nil {
		control.send(message{Op: "failed", Failure: encodeFailure(err)})
		return 74
	}
	var fds []int
	if master != nil {
		fds = append(fds, int(master.Fd()))
	}
	if err := control.send(message{Op: "ready", Report: v.report.bounded()}, fds...); err != nil {
		return 75
	}
	g, err := newGuard(v)
	if err != nil {
		return 76
	}
	s := &server{control: control, reaper: r, cfg: cfg, guard: g, master: master, quit: make(chan int, 1), jobs: make(chan func())}
	go s.requests()
	go s.reap(children)

	files := []uintptr{0, 1, 2}
	if slave != nil {
		files = []uintptr{slave.Fd(), slave.Fd(), slave.Fd()}
	}
	s.start(0, program{Args: cfg.Args, Env: cfg.Env, Dir: cfg.Dir, UID: cfg.UID, GID: cfg.GID, Groups: cfg.Groups, Terminal: slave != nil}, files)
	if slave != nil {
		slave.Close()
	}
	// The program's own ends only: a pipe must report end of file when the program closes it.
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for fd := range 3 {
			unix.Dup3(null, fd, 0)
		}
		unix.Close(null)
	}
	for {
		select {
		case job := <-s.jobs: // programs are started from this thread, which carries the restrictions
			job()
		case code := <-s.quit:
			return code
		}
	}
}

func readConfig(f *os.File) (config, error) {
	defer f.Close()
	var c config
	err := readMemoryFile(f, &c)
	return c, err
}

// setUp builds the view and restricts this thread. The terminal, if asked for, is of the view's own devpts.
func setUp(cfg config) (v *view, master, slave *os.File, err error) {
	if cfg.Cgroup {
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
			return nil, nil, nil, setupErr("unshare cgroup namespace", err)
		}
	}
	if err := unix.Sethostname([]byte(cfg.Hostname)); err != nil {
		return nil, nil, nil, setupErr("set host name", err)
	}
	if cfg.Network == NetworkNone {
		if err := loopbackUp(); err != nil {
			return nil, nil, nil, setupErr("bring up loopback", err)
		}
	}
	v, err = buildView(cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	if cfg.TTY {
		if master, slave, err = openTerminal(cfg.Rows, cfg.Cols); err != nil {
			return nil, nil, nil, setupErr("open terminal", err)
		}
		if err := slave.Chown(int(cfg.UID), 5); err != nil {
			slave.Chown(int(cfg.UID), int(cfg.GID))
		}
	}
	unix.Umask(int(cfg.Umask))
	v.report.AbstractSockets = "shared"
	if !cfg.WritableHost {
		if v.report.AbstractSockets, err = fenceAbstract(cfg.Network); err != nil {
			return nil, nil, nil, err
		}
	}
	if err := dropPrivileges(); err != nil {
		return nil, nil, nil, err
	}
	if !cfg.Unfiltered {
		if err := installFilter(); err != nil {
			return nil, nil, nil, setupErr("install system call filter", err)
		}
	}
	return v, master, slave, nil
}

// loopbackUp sets lo's flag IFF_UP in this network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
