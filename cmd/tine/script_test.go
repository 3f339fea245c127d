package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"tine/sidecar/isolate"
)

func TestMain(m *testing.M) {
	isolate.MaybeInit()
	testscript.Main(m, map[string]func(){"tine": main})
}

// TestScripts runs testdata/script/*.txtar, which read as a manual: each shows a task, the commands for it and what
// they print. Those whose name begins with "root-" mount forks and need root.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts: ", err)
	}
	if os.Geteuid() != 0 {
		unprivileged := scripts[:0]
		for _, s := range scripts {
			if !strings.HasPrefix(filepath.Base(s), "root-") {
				unprivileged = append(unprivileged, s)
			}
		}
		scripts = unprivileged
	}
	testscript.Run(t, testscript.Params{
		Files:               scripts,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setupScript,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"repo": scriptRepo, "json": scriptJSON, "status": scriptStatus, "mounted": scriptMounted, "set": scriptSet, "crash": scriptCrash,
		},
	})
}

// setupScript gives each script a store of its own, and sweeps what a failed one leaves mounted.
func setupScript(env *testscript.Env) error {
	env.Setenv("TINE_STORE", filepath.Join(env.WorkDir, "store"))
	env.Setenv("TINE_SOCKET", filepath.Join(env.WorkDir, "none.sock"))
	env.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	env.Setenv("GIT_CONFIG_SYSTEM", "/dev/null")
	env.Setenv("TZ", "UTC")
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		env.Setenv("GIT_"+who+"_NAME", "A U Thor")
		env.Setenv("GIT_"+who+"_EMAIL", "author@example.com")
		env.Setenv("GIT_"+who+"_DATE", "2026-01-02T03:04:05Z")
	}
	env.Defer(func() {
		mounts, _ := os.ReadFile("/proc/self/mounts")
		for line := range strings.Lines(string(mounts)) {
			if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], env.WorkDir+"/") {
				unix.Unmount(f[1], unix.MNT_DETACH)
			}
		}
	})
	return nil
}

// repo DIR makes a git repository of the files that are in DIR already.
func scriptRepo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: repo DIR")
	}
	for _, git := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-q", "-m", "first"}} {
		ts.Check(ts.Exec("git", append([]string{"-C", ts.MkAbs(args[0])}, git...)...))
	}
}

// json FIELD [VALUE] compares a field of the last standard output, "a.0.b", with VALUE, or shows that it is there.
func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: [!] json FIELD [VALUE]")
	}
	got, ok := jsonField(ts, args[0])
	matches := ok
	if ok && len(args) == 2 {
		matches = got == ts.MkAbs(args[1]) || got == args[1]
	}
	if matches == neg {
		ts.Fatalf("%s is %q (there: %v)", args[0], got, ok)
	}
}

// set VAR FIELD keeps a field of the last standard output in a variable.
func scriptSet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: set VAR FIELD")
	}
	got, ok := jsonField(ts, args[1])
	if !ok {
		ts.Fatalf("no %s", args[1])
	}
	ts.Setenv(args[0], got)
}

func jsonField(ts *testscript.TestScript, path string) (string, bool) {
	var v any
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	dec.UseNumber()
	ts.Check(dec.Decode(&v))
	for _, key := range strings.Split(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			inner, ok := at[key]
			if !ok {
				return "", false
			}
			v = inner
		case []any:
			if key == "length" {
				v = len(at)
				continue
			}
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(at) {
				return "", false
			}
			v = at[i]
		default:
			return "", false
		}
	}
	if v == nil {
		return "null", true
	}
	return fmt.Sprint(v), true
}

// status N COMMAND... runs a command that exits with N.
func scriptStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND [ARG]...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if err != nil {
		e, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		exit = e
		got = exit.ExitCode()
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit status %d, want %s", got, args[0])
	}
}

// [!] mounted DIR waits until DIR is a mount point, or no longer one.
func scriptMounted(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] mounted DIR")
	}
	dir := ts.MkAbs(args[0])
	for range 1000 {
		mounts, err := os.ReadFile("/proc/self/mounts")
		ts.Check(err)
		if strings.Contains(string(mounts), " "+dir+" ") != neg {
			var st unix.Statfs_t
			if neg || unix.Statfs(dir, &st) == nil { // a dead server's mount doesn't count
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("waited 10 s for %s to be mounted (not: %v)", dir, neg)
}

// crash NAME kills the background command of that name as a power switch would.
func scriptCrash(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: crash DIR")
	}
	// The command is found by the directory that it serves, among this script's own processes.
	for _, cmd := range ts.BackgroundCmds() {
		if len(cmd.Args) > 0 && cmd.Args[len(cmd.Args)-1] == args[0] {
			ts.Check(cmd.Process.Kill())
			return
		}
	}
	ts.Fatalf("no background command serves %s", args[0])
}
