package isolate

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// screen is a test's terminal: what the program wrote so far.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *screen) wait(t *testing.T, want string) {
	t.Helper()
	for range 600 {
		if strings.Contains(s.String(), want) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never saw %q; the screen has %q", want, s.String())
}

// terminal is the user's: the test holds the master.
func terminal(t *testing.T) (master, slave *os.File, scr *screen) {
	t.Helper()
	master, slave, err := openTerminal(33, 101)
	if err != nil {
		t.Skipf("no pseudo-terminals: %v", err)
	}
	scr = &screen{}
	go io.Copy(scr, master)
	t.Cleanup(func() {
		slave.Close()
		master.Close()
	})
	return master, slave, scr
}

// TestTerminal: the program has a terminal of its own with the user's size; keys reach it raw, ^C is its own line
// discipline's; the user's terminal is as before afterwards.
func TestTerminal(t *testing.T) {
	needRoot(t)
	master, slave, scr := terminal(t)
	before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	spec := baseSpec(t, `tty; stty size; echo ready; read line; echo "line=$line"
trap 'hit=1; echo interrupted' INT; hit=; echo waiting; until [ "$hit" ]; do sleep 0.05; done
until [ "$(stty size)" = "44 55" ]; do sleep 0.05; done; echo resized
while read x; do echo "x=$x"; done; echo eof; exit 6`)
	spec.Env = append(spec.Env, "TERM=dumb")
	spec.TTY, spec.Stdin, spec.Stdout = true, slave, slave
	p, err := Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	scr.wait(t, "ready")
	if !strings.Contains(scr.String(), "/dev/pts/0") || !strings.Contains(scr.String(), "33 101") {
		t.Errorf("screen %q", scr.String())
	}
	io.WriteString(master, "hello\r")
	scr.wait(t, "line=hello")
	scr.wait(t, "waiting")
	io.WriteString(master, "\x03")
	scr.wait(t, "interrupted")
	if err := p.Resize(44, 55); err != nil {
		t.Error(err)
	}
	scr.wait(t, "resized")
	io.WriteString(master, "again\r")
	scr.wait(t, "x=again")
	io.WriteString(master, "\x04")
	scr.wait(t, "eof")
	st, err := p.Wait()
	if err != nil || st.Code != 6 {
		t.Errorf("%+v, %v", st, err)
	}
	after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("terminal not restored: %+v, %v", after, err)
	}
}

// TestTerminalJobControl: an interactive shell in the view can stop and continue its jobs.
func TestTerminalJobControl(t *testing.T) {
	needRoot(t)
	master, slave, scr := terminal(t)
	spec := baseSpec(t, "")
	spec.Args = []string{"/bin/bash", "--norc", "-i"}
	spec.Env = append(spec.Env, "TERM=dumb", "PS1=prompt> ")
	spec.TTY, spec.Stdin, spec.Stdout = true, slave, slave
	p, err := Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	scr.wait(t, "prompt>")
	io.WriteString(master, "sh -c 'echo sta''rted; exec sleep 30'\r")
	scr.wait(t, "started")
	io.WriteString(master, "\x1a")
	scr.wait(t, "Stopped")
	io.WriteString(master, "kill %1; wait %1; exit 3\r")
	io.WriteString(master, "exit 3\r") // a shell with a stopped job wants to be told twice
	st, err := p.Wait()
	if err != nil || st.Code != 3 || strings.Contains(scr.String(), "no job control") {
		t.Errorf("%+v, %v, %q", st, err, scr.String())
	}
}

// TestS13_TerminalInjection: a program whose standard input is the user's terminal can't type into it.
func TestS13_TerminalInjection(t *testing.T) {
	needRoot(t)
	_, slave, _ := terminal(t)
	// As the user's shell, it is the controlling terminal of a session.
	shell := exec.Command("/proc/self/exe")
	shell.Args[0] = "sleeper"
	shell.Stdin = slave
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	startBeside(t, shell)
	spec := attackSpec(t, "inject", target{}, nil, 0)
	spec.Stdin = slave
	wantRun(t, spec, "attack done")
}
