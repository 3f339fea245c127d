package isolate

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	MaybeInit()
	if filepath.Base(os.Args[0]) == "attack" {
		os.Exit(attackMain())
	}
	if filepath.Base(os.Args[0]) == "sleeper" {
		os.Stdout.WriteString("ready\n")
		time.Sleep(time.Minute)
		os.Exit(0)
	}
	if filepath.Base(os.Args[0]) == "listener" {
		os.Exit(listenerMain(os.Args[1]))
	}
	if ws := os.Getenv("ISOLATE_TEST_CALLER"); ws != "" {
		os.Exit(callerMain(ws))
	}
	os.Exit(m.Run())
}

// needRoot skips where a view can't be made.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// workspace mounts a tmpfs that stands for a fork.
func workspace(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("ws", dir, "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// baseSpec runs a shell script over a workspace.
func baseSpec(t testing.TB, script string) Spec {
	return Spec{
		Args:       []string{"/bin/sh", "-c", script},
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
		Workspaces: []Workspace{{Target: "/workspace", Path: workspace(t)}},
		Home:       Home{Path: "/root"},
	}
}

// outcome is what a test sees of a run.
type outcome struct {
	out, err string
	status   Status
	report   Report
}

func run(t testing.TB, spec Spec) outcome {
	t.Helper()
	var out, errOut bytes.Buffer
	spec.Stdout, spec.Stderr = &out, &errOut
	p, err := Start(context.Background(), spec)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	stuck := time.AfterFunc(60*time.Second, p.Kill)
	defer stuck.Stop()
	st, err := p.Wait()
	if err != nil {
		t.Errorf("wait: %v", err)
	}
	return outcome{out.String(), errOut.String(), st, p.Report()}
}

// wantRun runs a script and fails the test unless it ends with status 0 and prints want.
func wantRun(t *testing.T, spec Spec, want string) {
	t.Helper()
	o := run(t, spec)
	if o.status.Code != 0 || strings.TrimSpace(o.out) != want {
		t.Errorf("status %d, output %q, want %q; stderr %q", o.status.Code, o.out, want, o.err)
	}
}

func TestRunProgram(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, "pwd; echo x > new; echo out; echo err >&2; exit 7")
	ws := spec.Workspaces[0].Path
	o := run(t, spec)
	if o.out != "/workspace\nout\n" || o.err != "err\n" || o.status.Code != 7 {
		t.Fatalf("%+v", o)
	}
	if data, err := os.ReadFile(filepath.Join(ws, "new")); err != nil || string(data) != "x\n" {
		t.Errorf("what the program wrote: %q, %v", data, err)
	}
	t.Logf("%+v", o.report)
}

func TestExitStatus(t *testing.T) {
	needRoot(t)
	for script, want := range map[string]int{"exit 0": 0, "exit 255": 255, "kill -TERM $$": 128 + 15, "kill -KILL $$": 128 + 9, "kill -SEGV $$": 128 + 11} {
		if o := run(t, baseSpec(t, script)); o.status.Code != want {
			t.Errorf("%s: %d, want %d", script, o.status.Code, want)
		}
	}
	for program, want := range map[string]int{"/no/such/program": 127, "no-such-program": 127, "/etc/passwd": 126, "/etc": 126} {
		spec := baseSpec(t, "")
		spec.Args = []string{program}
		_, err := Start(context.Background(), spec)
		var start *StartError
		if !errors.As(err, &start) || ExitCode(err) != want {
			t.Errorf("%s: %v, want status %d", program, err, want)
		}
	}
}

func TestDetachedMount(t *testing.T) {
	needRoot(t)
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := os.NewFile(uintptr(fd), "mount")
	defer m.Close()
	spec := baseSpec(t, "echo hello > /systems/one/file; cat /systems/one/file; pwd")
	spec.Workspaces = append(spec.Workspaces, Workspace{Target: "/systems/one", Mount: m})
	wantRun(t, spec, "hello\n/workspace")
}

// listenerMain answers with the marker on a socket bound by a relative name.
func listenerMain(name string) int {
	l, err := net.Listen("unix", name)
	if err != nil {
		return 1
	}
	os.Chmod(name, 0o777)
	os.Stdout.WriteString("ready\n")
	for {
		c, err := l.Accept()
		if err != nil {
			return 1
		}
		c.Write([]byte(marker))
		c.Close()
	}
}
