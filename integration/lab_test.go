package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tine/integration/manifest"
	"tine/integration/testrepo"
)

// lab is one test's store, scratch directory and servers. Tests don't run in parallel: what is left after one is
// its own.
type lab struct {
	t       *testing.T
	dir     string
	store   string
	servers []*server
	before  baseline
	// damaged: the store was broken on purpose, don't expect fsck to pass at the end.
	damaged bool
	// killedRuns: runs were killed with SIGKILL; what they left goes some time later, with another run.
	killedRuns bool
}

func newLab(t *testing.T) *lab {
	t.Helper()
	requireRoot(t)
	dir, err := os.MkdirTemp(scratch, "lab-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: dir, store: filepath.Join(dir, "store"), before: takeBaseline()}
	t.Cleanup(l.close)
	return l
}

// close stops what still runs and checks that nothing is left.
func (l *lab) close() {
	for _, s := range l.servers {
		if s.running() {
			s.stop()
		}
	}
	if !l.damaged && !l.t.Failed() {
		if _, err := os.Stat(l.store); err == nil {
			l.ok("fsck", "--all")
		}
	}
	l.checkLeftovers()
	sweep(l.dir)
}

// path is below the lab's directory.
func (l *lab) path(elem ...string) string { return filepath.Join(append([]string{l.dir}, elem...)...) }

// mkdir makes a directory below the lab's.
func (l *lab) mkdir(name string) string {
	l.t.Helper()
	l.must(os.MkdirAll(l.path(name), 0o755))
	return l.path(name)
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// result of one command.
type result struct {
	args   []string
	status int // exit status; 128+n for signal n
	stdout string
	stderr string
}

func (r result) String() string {
	return strings.Join(r.args, " ") + ": status " + itoa(r.status) + "\nstdout: " + clip(r.stdout) + "\nstderr: " + clip(r.stderr)
}

func clip(s string) string {
	if len(s) > 4000 {
		return s[:4000] + "…"
	}
	return s
}

// commandLimit is how long a single command may take before it counts as hanging.
const commandLimit = 5 * time.Minute

// command runs anything and returns how it went.
func command(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &errs
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	started[cmd.Process.Pid] = true
	timer := time.AfterFunc(commandLimit, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	defer timer.Stop()
	err := cmd.Wait()
	r := result{args: cmd.Args, stdout: out.String(), stderr: errs.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		ws := exit.Sys().(syscall.WaitStatus)
		r.status = ws.ExitStatus()
		if ws.Signaled() {
			r.status = 128 + int(ws.Signal())
		}
	case err != nil:
		t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	return r
}

// tineCmd is a tine command on the lab's store.
func (l *lab) tineCmd(args ...string) *exec.Cmd {
	cmd := exec.Command(*binary, args...)
	cmd.Dir = l.dir
	cmd.Env = append(testrepo.Env(), "TINE_STORE="+l.store, "TINE_SOCKET="+l.path("no-sidecar.sock"), "NO_COLOR=1")
	return cmd
}

// run runs tine.
func (l *lab) run(args ...string) result {
	l.t.Helper()
	return command(l.t, l.tineCmd(args...))
}

// ok runs tine, which must succeed, and returns its standard output.
func (l *lab) ok(args ...string) string {
	l.t.Helper()
	r := l.run(args...)
	if r.status != 0 {
		l.t.Fatal(r)
	}
	return r.stdout
}

// json runs tine with --json, which must succeed, and decodes its document into v.
func (l *lab) json(v any, args ...string) {
	l.t.Helper()
	out := l.ok(append([]string{"--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		l.t.Fatalf("%s: %v in %s", strings.Join(args, " "), err, clip(out))
	}
}

// fails runs tine, which must fail with the status and say each of the words on standard error.
func (l *lab) fails(status int, words []string, args ...string) result {
	l.t.Helper()
	r := l.run(args...)
	if r.status != status {
		l.t.Errorf("want status %d of %v", status, r)
	}
	for _, w := range words {
		if !strings.Contains(strings.ToLower(r.stderr), strings.ToLower(w)) {
			l.t.Errorf("want %q in the message of %v", w, r)
		}
	}
	return r
}

// imported is what import prints.
type imported struct {
	Checkpoint string
	Tree       string
	Commit     *string
	Files      int64
	Bytes      int64
	Seconds    float64
}

func (l *lab) importGit(args ...string) imported {
	l.t.Helper()
	var i imported
	l.json(&i, append([]string{"import", "git"}, args...)...)
	return i
}

func (l *lab) importDir(args ...string) imported {
	l.t.Helper()
	var i imported
	l.json(&i, append([]string{"import", "dir"}, args...)...)
	return i
}

// fork makes one fork and returns its id.
func (l *lab) fork(of string, args ...string) string {
	l.t.Helper()
	var f struct{ Fork, Checkpoint string }
	l.json(&f, append([]string{"fork", "create", of}, args...)...)
	if f.Fork == "" {
		l.t.Fatal("fork create printed no id")
	}
	return f.Fork
}

// sealed is what seal prints.
type sealed struct {
	Checkpoint   string
	Changed      bool
	ChangedFiles int64 `json:"changed_files"`
	FrozenUS     int64 `json:"frozen_us"`
}

func (l *lab) seal(fork string, args ...string) sealed {
	l.t.Helper()
	var s sealed
	l.json(&s, append([]string{"seal", fork}, args...)...)
	return s
}

// shell runs a script with sh in a directory; it must succeed. Its output is returned.
func (l *lab) shell(dir, script string) string {
	l.t.Helper()
	cmd := exec.Command("sh", "-euc", script)
	cmd.Dir, cmd.Env = dir, testrepo.Env()
	r := command(l.t, cmd)
	if r.status != 0 {
		l.t.Fatal(r)
	}
	return strings.TrimSuffix(r.stdout, "\n")
}

// manifest reads a tree.
func (l *lab) manifest(dir string) manifest.Manifest {
	l.t.Helper()
	m, err := manifest.Take(dir, manifest.Options{})
	l.must(err)
	if bad := manifest.Inconsistent(m); bad != nil {
		l.t.Errorf("%s contradicts itself:\n%s", dir, strings.Join(head(bad), "\n"))
	}
	return m
}

// same fails the test when two trees differ.
func (l *lab) same(a string, x manifest.Manifest, b string, y manifest.Manifest, r manifest.Rules) {
	l.t.Helper()
	if d := manifest.Compare(a, x, b, y, r); d != nil {
		l.t.Errorf("%s and %s differ in %d places:\n%s", a, b, len(d), strings.Join(head(d), "\n"))
	}
}

func head(list []string) []string {
	if len(list) > 20 {
		return append(list[:20:20], "…")
	}
	return list
}

func contains(s, sub string) bool { return strings.Contains(s, sub) }

func count(s, sub string) int { return strings.Count(s, sub) }

// writeFile writes a file below the lab's directory.
func (l *lab) writeFile(name, text string) {
	l.t.Helper()
	l.must(os.WriteFile(l.path(name), []byte(text), 0o644))
}

// damageBlobs makes every small blob of a git directory's packs unreadable.
func (l *lab) damageBlobs(gitDir string) {
	l.t.Helper()
	n, err := testrepo.DamageBlobs(gitDir, 8<<20)
	l.must(err)
	if n == 0 {
		l.t.Fatal("no blob to damage")
	}
}
