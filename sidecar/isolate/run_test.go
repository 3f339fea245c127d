package isolate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
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
	end := time.Now().Add(1500 * time.Millisecond)
	spec := baseSpec(t, `cat /run/tine/deadline; trap 'echo told' TERM; (echo 0 > /run/tine/deadline) 2>/dev/null && echo forged; rm -f /run/tine/deadline 2>/dev/null && echo removed; while :; do sleep 0.05; done`)
	spec.Deadline, spec.Grace = end, 300*time.Millisecond
	o := run(t, spec)
	if o.status.Code != 124 || !o.status.Expired {
		t.Errorf("%+v", o.status)
	}
	if want := fmt.Sprintf("%d\ntold\n", end.Unix()); o.out != want {
		t.Errorf("output %q, want %q (stderr %q)", o.out, want, o.err)
	}
	if late := time.Since(end); late < 300*time.Millisecond || late > 3*time.Second {
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
		if left == 0 && !exists("/proc/"+pid) {
			break
		}
		if i == 400 {
			t.Fatalf("%d processes left", left)
		}
		time.Sleep(5 * time.Millisecond)
	}
	for _, g := range strings.Split(groups, ":") {
		if !exists(g) {
			continue
		}
		old := time.Now().Add(-time.Minute)
		os.Chtimes(g, old, old) // may not be possible; then it has to age
		sweepOlder(filepath.Dir(g), 0)
		if exists(g) {
			t.Errorf("not swept: %s", g)
		}
		unix.Rmdir(filepath.Dir(g))
	}
}

func TestLimits(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, `head -c 200M /dev/zero | tail -c 200M | wc -c`)
	spec.Limits.Memory = 64 << 20
	p, err := Start(context.Background(), spec)
	var unsupported *UnsupportedError
	if errors.As(err, &unsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	st, err := p.Wait()
	if err != nil || !st.OOMKilled {
		t.Errorf("memory: %+v, %v", st, err)
	}

	spec = baseSpec(t, `i=0; while [ $i -lt 200 ]; do sleep 5 & i=$((i+1)); done 2>/dev/null; echo spawned`)
	spec.Limits.Pids = 20
	if o := run(t, spec); strings.Contains(o.out, "spawned") && o.status.Code == 0 {
		t.Errorf("200 processes under a limit of 20: %+v", o)
	}

	spec = baseSpec(t, "sleep 60")
	spec.Limits.CPUs = 0.25
	p, err = Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	quota, err := os.ReadFile(filepath.Join(p.Cgroup().V2, "cpu.max"))
	if d := p.Cgroup().V1["cpu"]; d != "" {
		quota, err = os.ReadFile(filepath.Join(d, "cpu.cfs_quota_us"))
	}
	if err != nil || !strings.HasPrefix(string(quota), "25000") {
		t.Errorf("cpu quota %q, %v", quota, err)
	}
	p.Kill()
	if st, err := p.Wait(); err != nil || st.Code != 137 {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestLimitsRefused: what can't be enforced is refused by name, and nothing is made.
func TestLimitsRefused(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("hugetlb\n"), 0o644)
	for _, h := range []hierarchies{{}, {v2: dir}, {v1: map[string]string{"freezer": dir}}} {
		for _, l := range []Limits{{Memory: 1 << 30}, {CPUs: 1}, {Pids: 10}} {
			_, err := makeCgroup(h, l)
			var u *UnsupportedError
			if !errors.As(err, &u) {
				t.Errorf("%+v with %+v: %v", l, h, err)
			}
		}
	}
	if _, err := (hierarchies{}).settings(Limits{CPUs: 0.001}); err == nil {
		t.Error("a thousandth of a processor was accepted")
	}
	if e, _ := os.ReadDir(dir); len(e) != 1 {
		t.Errorf("left %v", e)
	}
}

// TestPureV2Settings: on a host with the unified hierarchy only, its controllers are turned on and used.
func TestPureV2Settings(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, parentGroup)} {
		os.MkdirAll(d, 0o755)
		os.WriteFile(filepath.Join(d, "cgroup.controllers"), []byte("cpuset cpu io memory pids\n"), 0o644)
		os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), nil, 0o644)
	}
	got, err := (hierarchies{v2: dir}).settings(Limits{Memory: 1 << 30, CPUs: 1.5, Pids: 10})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"memory.max": "1073741824", "memory.swap.max": "0", "cpu.max": "150000 100000", "pids.max": "26"}
	for _, s := range got {
		if s.v1 != "" || want[s.file] != s.value {
			t.Errorf("%+v", s)
		}
		delete(want, s.file)
	}
	if len(want) != 0 {
		t.Errorf("missing %v", want)
	}
}

func TestFindHierarchies(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"unified", "memory/mine/too", "cpu,cpuacct"} {
		os.MkdirAll(filepath.Join(dir, d), 0o755)
	}
	mounts := []mountEntry{
		{FSType: "cgroup2", Point: filepath.Join(dir, "unified"), Root: "/"},
		{FSType: "cgroup", Point: filepath.Join(dir, "memory"), Root: "/", Super: "rw,memory"},
		{FSType: "cgroup", Point: filepath.Join(dir, "cpu,cpuacct"), Root: "/docker/x", Super: "rw,cpu,cpuacct"},
	}
	h := findHierarchies(mounts, []byte("4:memory:/mine/too\n2:cpu,cpuacct:/docker/x\n0::/user.slice\n"))
	want := map[string]string{"memory": filepath.Join(dir, "memory/mine/too"), "cpu": filepath.Join(dir, "cpu,cpuacct"), "cpuacct": filepath.Join(dir, "cpu,cpuacct")}
	if h.v2 != filepath.Join(dir, "unified") || fmt.Sprint(h.v1) != fmt.Sprint(want) {
		t.Errorf("%+v", h)
	}
}

func TestNetworkNone(t *testing.T) {
	needRoot(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	script := fmt.Sprintf(`ls /sys/class/net; cat /proc/net/dev | grep -c :; exec 3<>/dev/tcp/127.0.0.1/%d && echo reached`, port)
	spec := baseSpec(t, "")
	spec.Args = []string{"/bin/bash", "-c", script}
	spec.Network = NetworkNone
	o := run(t, spec)
	if !strings.HasPrefix(o.out, "lo\n1\n") || strings.Contains(o.out, "reached") || o.report.AbstractSockets != "private" {
		t.Errorf("%+v", o)
	}
	spec = baseSpec(t, "")
	spec.Args = []string{"/bin/bash", "-c", fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%d && echo reached`, port)}
	if o := run(t, spec); o.out != "reached\n" {
		t.Errorf("the host's network: %+v", o)
	}
}

// TestS13_Stdio: a descriptor that leads out of the view is not passed on.
func TestS13_Stdio(t *testing.T) {
	needRoot(t)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	spec := baseSpec(t, "true")
	spec.Stdin = dir
	var refused *RefusedError
	if _, err := Start(context.Background(), spec); !errors.As(err, &refused) {
		t.Errorf("a directory as standard input: %v", err)
	}
	spec = baseSpec(t, "cat; wc -c < /dev/stdin")
	spec.Stdin = strings.NewReader("from a reader")
	wantRun(t, spec, "from a reader0")
}

// TestS13_SwappedTarget: a symlink in a workspace doesn't redirect the mount of another.
func TestS13_SwappedTarget(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, "true")
	os.Symlink("/etc", filepath.Join(spec.Workspaces[0].Path, "sub"))
	spec.Workspaces = append(spec.Workspaces, Workspace{Target: "/workspace/sub", Path: workspace(t)})
	if p, err := Start(context.Background(), spec); err == nil {
		p.Kill()
		t.Error("mounted through a symlink")
	}
	os.Remove(filepath.Join(spec.Workspaces[0].Path, "sub"))
	os.Mkdir(filepath.Join(spec.Workspaces[0].Path, "sub"), 0o755)
	spec.Args[2] = "echo inner > sub/f; cat /workspace/sub/f"
	wantRun(t, spec, "inner")
}

func TestUser(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, `id -u; id -g; id -G; grep CapEff /proc/self/status; umask; touch /workspace/mine && echo wrote; cat /etc/shadow 2>/dev/null | head -c1`)
	os.Chmod(spec.Workspaces[0].Path, 0o777)
	spec.UID, spec.GID, spec.Groups = 1234, 1235, []uint32{1236}
	wantRun(t, spec, "1234\n1235\n1235 1236\nCapEff:\t0000000000000000\n0022\nwrote")
}

// TestS13_Capabilities: Docker's default set less MKNOD, whatever the caller has.
func TestS13_Capabilities(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, `grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | tr -s '\t' ' '; grep Seccomp: /proc/self/status | tr '\t' ' '`)
	wantRun(t, spec, "CapInh: 0000000000000000\nCapPrm: 00000000a00425fb\nCapEff: 00000000a00425fb\nCapBnd: 00000000a00425fb\nCapAmb: 0000000000000000\nSeccomp: 2")
}

func TestFiles(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, `cat /run/secrets/key /run/tine/request.json; stat -c '%a %u' /run/secrets/key; (echo x > /run/secrets/key) 2>/dev/null || echo kept`)
	spec.Files = []File{{Path: "/run/secrets/key", Data: []byte("s3cret\n"), Mode: 0o400, UID: 7}, {Path: "/run/tine/request.json", Data: []byte("{}\n")}}
	wantRun(t, spec, "s3cret\n{}\n400 7\nkept")
	spec.Files = []File{{Path: "/etc/passwd"}}
	var bad *SpecError
	if _, err := Start(context.Background(), spec); !errors.As(err, &bad) {
		t.Errorf("a file in /etc: %v", err)
	}
}

// TestView: what programs expect to find, and what they may do with it.
func TestView(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, `set -e
echo x > /dev/null; head -c4 /dev/urandom > /tmp/r; test $(stat -c %s /tmp/r) = 4; head -c 2 /dev/zero > /var/tmp/z
test -c /dev/full; test -c /dev/tty; test -d /dev/shm; echo s > /dev/shm/s; test -L /dev/ptmx
for d in /usr /etc /bin /; do if touch $d/x 2>/dev/null; then echo wrote $d; fi; done
test $$ -gt 1; test "$(cat /proc/1/comm)" = tine-init; test "$(hostname)" = tine
if [ -w /sys/class ]; then touch /sys/class/x 2>/dev/null && echo sys; fi
ls /run/docker.sock 2>/dev/null || true
stat -c %a /tmp /run | tr '\n' ' '
python3 -c 'import multiprocessing as m; m.Lock()' 2>/dev/null || true
sort --version >/dev/null; echo ok`)
	wantRun(t, spec, "1777 755 ok")
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

func TestS13_WritableHost(t *testing.T) {
	needRoot(t)
	dir, err := os.MkdirTemp("/var/lib", "tine-writable-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	spec := baseSpec(t, "echo new > "+dir+"/file; cat "+dir+"/file; test -d /dev/shm; pwd; grep CapEff /proc/self/status")
	spec.Hide = []string{dir}
	spec.WritableHost = true
	o := run(t, spec)
	if o.out != "new\n/workspace\nCapEff:\t00000000a00425fb\n" || o.report.Isolation != "host" || o.report.Home != "host" {
		t.Errorf("%+v", o)
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Error(err)
	}
}
