package isolate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestT1_Deadline: the file tells it, SIGTERM at expiry, SIGKILL after the grace, status 124.
func TestT1_Deadline(t *testing.T) {
	needRoot(t)
	end := time.Now().Add(2 * time.Second)
	spec := baseSpec(t, `cat /run/tine/deadline; trap 'echo told' TERM; (echo 0 > /run/tine/deadline) 2>/dev/null && echo forged; rm -f /run/tine/deadline 2>/dev/null && echo removed; while :; do sleep 0.05; done`)
	spec.Deadline, spec.Grace = end, time.Second
	o := run(t, spec)
	if o.status.Code != 124 || !o.status.Expired {
		t.Errorf("%+v", o.status)
	}
	if want := fmt.Sprintf("%d\ntold\n", end.Unix()); o.out != want {
		t.Errorf("output %q, want %q (stderr %q)", o.out, want, o.err)
	}
	if late := time.Since(end); late < time.Second || late > 6*time.Second {
		t.Errorf("ended %v after the deadline", late)
	}
}

func TestT1_DeadlineNotReached(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, "exit 3")
	spec.Deadline = time.Now().Add(time.Minute)
	if o := run(t, spec); o.status.Code != 3 || o.status.Expired {
		t.Errorf("%+v", o.status)
	}
	spec.Deadline = time.Now().Add(-time.Second)
	var refused *RefusedError
	if _, err := Start(context.Background(), spec); !errors.As(err, &refused) {
		t.Errorf("a deadline in the past: %v", err)
	}
}

// TestT4_FrozenAtTheDeadline: a frozen program doesn't outlive its deadline.
func TestT4_FrozenAtTheDeadline(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, "sleep 60")
	spec.Deadline, spec.Grace = time.Now().Add(time.Second), 100*time.Millisecond
	p, err := Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	frozen := false
	for _, d := range p.Cgroup().Payload() {
		frozen = writeControl(filepath.Join(d, "freezer.state"), "FROZEN") == nil || frozen
		frozen = writeControl(filepath.Join(d, "cgroup.freeze"), "1") == nil || frozen
	}
	if !frozen {
		t.Log("no freezer here")
	}
	st, err := p.Wait()
	if err != nil || st.Code != 124 {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestSignals(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, `trap 'echo int; exit 5' INT; echo ready > /workspace/ready; while :; do sleep 0.02; done`)
	var out bytes.Buffer
	spec.Stdout = &out
	p, err := Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, filepath.Join(spec.Workspaces[0].Path, "ready"))
	p.Signal(unix.SIGINT)
	st, err := p.Wait()
	if err != nil || st.Code != 5 || out.String() != "int\n" {
		t.Errorf("%+v, %v, %q", st, err, out.String())
	}
	if err := p.Signal(unix.SIGINT); !errors.Is(err, ErrEnded) {
		t.Errorf("signal after the end: %v", err)
	}
}

func waitFor(t *testing.T, file string) {
	t.Helper()
	for range 1000 {
		if _, err := os.Stat(file); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s never came", file)
}

// TestNothingSurvives: the end of the program ends what it left in the background, and all traces are removed.
func TestNothingSurvives(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, "setsid sleep 987 & (setsid sleep 987 &); echo done")
	spec.Scratch = t.TempDir()
	var out bytes.Buffer
	spec.Stdout = &out
	p, err := Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	dirs := p.Cgroup().dirs()
	if _, err := p.Wait(); err != nil {
		t.Error(err)
	}
	for _, d := range dirs {
		if exists(d) {
			t.Errorf("left %s", d)
		}
	}
	if e, _ := os.ReadDir(spec.Scratch); len(e) != 0 {
		t.Errorf("left %v in the scratch directory", e)
	}
	if n := countProcesses("sleep\x00987"); n != 0 {
		t.Errorf("%d processes left", n)
	}
}

func countProcesses(with string) int {
	n := 0
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		if data, _ := os.ReadFile(p); bytes.Contains(data, []byte(with)) {
			n++
		}
	}
	return n
}

// callerMain is a process that starts a run and is killed, for TestCallerKilled.
func callerMain(ws string) int {
	p, err := Start(context.Background(), Spec{
		Args: []string{"/bin/sh", "-c", "setsid sleep 986 & setsid sleep 986 & echo ready > /workspace/ready; sleep 986"}, Env: []string{"PATH=/usr/bin:/bin"},
		Workspaces: []Workspace{{Target: "/workspace", Path: ws}}, Scratch: os.Getenv("ISOLATE_TEST_SCRATCH"),
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTSTP)
	go func() {
		for range stop {
			p.Suspend()
		}
	}()
	fmt.Println(p.InitPID(), strings.Join(p.Cgroup().dirs(), ":"))
	p.Wait()
	return 0
}

// TestCallerKilled: SIGKILL to the caller leaves no process; what it couldn't remove goes with the next run.
func TestCallerKilled(t *testing.T) {
	needRoot(t)
	ws := workspace(t)
	cmd := exec.Command("/proc/self/exe")
	scratch := t.TempDir()
	cmd.Env = append(os.Environ(), "ISOLATE_TEST_CALLER="+ws, "ISOLATE_TEST_SCRATCH="+scratch)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, filepath.Join(ws, "ready"))
	line := make([]byte, 4096)
	n, _ := out.Read(line)
	pid, groups, _ := strings.Cut(strings.TrimSpace(string(line[:n])), " ")
	if _, err := strconv.Atoi(pid); err != nil {
		t.Fatalf("caller said %q", line[:n])
	}
	cmd.Process.Kill()
	cmd.Wait()
	for i := 0; ; i++ {
		left := countProcesses("sleep\x00986")
		if left == 0 && gone(pid) {
			break
		}
		if i == 400 {
			t.Fatalf("%d processes left", left)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if e, _ := os.ReadDir(scratch); len(e) != 1 {
		t.Errorf("scratch directory: %v", e)
	}
	other := filepath.Join(scratch, scratchPrefix+"of-somebody-else")
	os.Mkdir(other, 0o755)
	os.WriteFile(filepath.Join(other, scratchMark), []byte("tine scratch directory 1:2\n"), 0o644)
	spec := baseSpec(t, "true")
	spec.Scratch = scratch
	run(t, spec)
	if e, _ := os.ReadDir(scratch); len(e) != 1 || !exists(other) {
		t.Errorf("the next run left %v", e)
	}
	sweepGroups(t, groups)
}

func TestSpawn(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, "echo started > ready; while [ ! -e stop ]; do sleep 0.02; done; exit 4")
	p, err := Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	ws := spec.Workspaces[0].Path
	waitFor(t, filepath.Join(ws, "ready"))
	r, w, _ := os.Pipe()
	s, err := p.Spawn(context.Background(), SessionSpec{Args: []string{"sh", "-c", "pwd; grep CapEff /proc/self/status; cat ready; exit 9"}, Files: [3]*os.File{nil, w, w}})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	out.ReadFrom(r)
	if code := s.Wait(); code != 9 || out.String() != "/workspace\nCapEff:\t00000000a00425fb\nstarted\n" {
		t.Errorf("%d, %q", code, out.String())
	}
	if _, err := p.Spawn(context.Background(), SessionSpec{Args: []string{"/nowhere"}}); ExitCode(err) != 127 {
		t.Errorf("%v", err)
	}
	long, err := p.Spawn(context.Background(), SessionSpec{Args: []string{"sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(ws, "stop"), nil, 0o644)
	if st, err := p.Wait(); err != nil || st.Code != 4 {
		t.Errorf("%+v, %v", st, err)
	}
	if code := long.Wait(); code != 137 {
		t.Errorf("a session that was cut off: %d", code)
	}
	if _, err := p.Spawn(context.Background(), SessionSpec{Args: []string{"true"}}); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}

// TestLargeArguments: nothing about a program has to fit into a message.
func TestLargeArguments(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, `printf %s "$1$LONG" | wc -c`)
	spec.Args = append(spec.Args, "sh", strings.Repeat("a", 100_000))
	for i := range 12 {
		spec.Args = append(spec.Args, strings.Repeat("b", 100_000))
		spec.Env = append(spec.Env, fmt.Sprintf("E%d=%s", i, strings.Repeat("e", 20_000)))
	}
	spec.Env = append(spec.Env, "LONG="+strings.Repeat("c", 100_000))
	wantRun(t, spec, "200000")
	spec.Args = []string{strings.Repeat("x", 100_000)}
	if _, err := Start(context.Background(), spec); ExitCode(err) != 127 {
		t.Errorf("a program with a long name: %.200v", err)
	}
}

func TestCancelledStart(t *testing.T) {
	needRoot(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	spec := baseSpec(t, "sleep 60")
	spec.Scratch = t.TempDir()
	p, err := Start(ctx, spec)
	if err == nil { // it may have won the race
		p.Kill()
		p.Wait()
	}
	if e, _ := os.ReadDir(spec.Scratch); len(e) != 0 {
		t.Errorf("left %v", e)
	}
}

// TestSuspend: ^Z of a shell stops caller and program together, fg continues both.
func TestSuspend(t *testing.T) {
	needRoot(t)
	ws := workspace(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "ISOLATE_TEST_CALLER="+ws, "ISOLATE_TEST_SCRATCH="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	waitFor(t, filepath.Join(ws, "ready"))
	line := make([]byte, 4096)
	n, err := out.Read(line) // it listens to signals by then
	if err != nil {
		t.Fatal(err)
	}
	pid, groups, _ := strings.Cut(strings.TrimSpace(string(line[:n])), " ")
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
		for i := 0; !gone(pid) && i < 400; i++ {
			time.Sleep(5 * time.Millisecond)
		}
		sweepGroups(t, groups)
	}()
	want := func(state string) {
		t.Helper()
		var got []string
		for range 400 {
			got = []string{processState(strconv.Itoa(cmd.Process.Pid))}
			procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, p := range procs {
				if data, _ := os.ReadFile(p); bytes.HasPrefix(data, []byte("sleep\x00986")) {
					got = append(got, processState(filepath.Base(filepath.Dir(p))))
				}
			}
			if len(got) == 4 && strings.Trim(strings.Join(got, ""), state) == "" {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("states %q, want all in %q", got, state)
	}
	want("SR")
	cmd.Process.Signal(unix.SIGTSTP)
	want("T")
	cmd.Process.Signal(unix.SIGCONT)
	want("SR")
}

func processState(pid string) string {
	data, _ := os.ReadFile("/proc/" + pid + "/stat")
	if _, after, ok := strings.Cut(string(data), ") "); ok {
		return after[:1]
	}
	return ""
}

// gone reports whether a process has ended, reaped or not: that is up to whoever inherited it.
func gone(pid string) bool {
	s := processState(pid)
	return s == "" || s == "Z"
}

// sweepGroups wants the next run to be able to remove what a killed caller left (it would wait until it is old enough).
func sweepGroups(t *testing.T, groups string) {
	t.Helper()
	for _, g := range strings.Split(groups, ":") {
		// A killed group's last members may take a moment to be reaped.
		for range 400 {
			if sweepOlder(filepath.Dir(g), 0); !exists(g) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if exists(g) {
			t.Errorf("not swept: %s", g)
		}
		unix.Rmdir(filepath.Dir(g))
	}
}
