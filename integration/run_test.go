package integration

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"tine/integration/testrepo"
)

// TestRunOnTheGoSources is the example: right answers from inside, right report outside.
func TestRunOnTheGoSources(t *testing.T) {
	l := newLab(t)
	repo, err := goSource()
	l.must(err)
	r := l.run("run", "--repo", repo, "--", "sh", "-c", `go version && ls /workspace | wc -l && echo x > new.txt && git status --porcelain`)
	want := l.shell(repo, "go version; ls | wc -l") + "\n?? new.txt\n"
	if r.status != 0 || r.stdout != want {
		t.Errorf("want output %q of %v", want, r)
	}
	if !strings.Contains(r.stderr, "checkpoint") {
		t.Errorf("the summary names no checkpoint: %s", r.stderr)
	}
	l.shell(repo, `test -z "$(git status --porcelain)"; test ! -e new.txt`)
	if fs := l.ok("--json", "fork", "ls"); strings.TrimSpace(fs) != "[]" {
		t.Errorf("a run without --keep left a fork: %s", fs)
	}
}

// TestRunExitStatus: the program's own, 128+n, 124 at the deadline, 125 of tine's, 126 and 127 as a shell.
func TestRunExitStatus(t *testing.T) {
	l := newLab(t)
	repo := l.smallRepo("repo")
	l.importGit(repo)
	run := func(flags string, program ...string) []string {
		args := append([]string{"run", "--repo", repo}, strings.Fields(flags)...)
		return append(append(args, "--"), program...)
	}
	for _, c := range []struct {
		name   string
		status int
		args   []string
	}{
		{"success", 0, run("", "true")},
		{"own status", 42, run("", "sh", "-c", "exit 42")},
		{"signal", 128 + int(syscall.SIGKILL), run("", "sh", "-c", "kill -9 $$")},
		{"TERM", 128 + int(syscall.SIGTERM), run("", "sh", "-c", "kill $$")},
		{"deadline", 124, run("--deadline-seconds 1", "sleep", "60")},
		{"not found", 127, run("", "no-such-program-anywhere")},
		{"not executable", 126, run("", "/workspace/README.md")},
		{"no such repository", 125, []string{"run", "--repo", l.path("nothing"), "--", "true"}},
		{"no such checkpoint", 125, []string{"run", "--checkpoint", "nothing", "--", "true"}},
		{"flags wrong", 125, run("--no-such-flag", "true")},
	} {
		r := l.run(c.args...)
		if r.status != c.status && !(c.name == "flags wrong" && r.status == 2) {
			t.Errorf("%s: want status %d of %v", c.name, c.status, r)
		}
	}
}

// TestRunFlags: user, environment, working directory, network.
func TestRunFlags(t *testing.T) {
	l := newLab(t)
	repo := l.smallRepo("repo")
	run := func(want string, args ...string) {
		t.Helper()
		r := l.run(append([]string{"run", "--repo", repo}, args...)...)
		if r.status != 0 || strings.TrimSpace(r.stdout) != want {
			t.Errorf("want %q of %v", want, r)
		}
	}
	run("1000 1001", "--user", "1000:1001", "--", "sh", "-c", `echo $(id -u) $(id -g)`)
	run("ok", "--user", "1000", "--", "sh", "-ec", `test "$(stat -c %u README.md)" = 1000; echo x >>README.md; git status --porcelain >/dev/null; git commit -qam x; echo ok`)
	run("v=1 x", "--env", "A=v=1", "--env", "B=x", "--", "sh", "-c", `echo $A $B`)
	run("/workspace/src", "--workdir", "src", "--", "pwd")
	run("/workspace", "--", "pwd")
	run("lo", "--network", "none", "--", "sh", "-c", "ls /sys/class/net 2>/dev/null || cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '")
	// An owner map does not change identities: two users' equal changes seal to one checkpoint's tree.
	r := l.run("--json", "run", "--repo", repo, "--user", "1000", "--", "chmod", "600", "README.md")
	if r.status != 0 {
		t.Error(r)
	}
}

// TestRunPassesInterrupts: SIGINT and SIGTERM reach the program, and everything is cleaned up afterwards.
func TestRunPassesInterrupts(t *testing.T) {
	l := newLab(t)
	repo := l.smallRepo("repo")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd := l.tineCmd("run", "--repo", repo, "--", "sh", "-c", `trap 'echo got it; exit 9' INT TERM; echo ready; while :; do sleep .05; done`)
		out, err := cmd.StdoutPipe()
		l.must(err)
		l.must(cmd.Start())
		started[cmd.Process.Pid] = true
		buf := make([]byte, 100)
		n, _ := out.Read(buf)
		if string(buf[:n]) != "ready\n" {
			t.Fatalf("the program says %q", buf[:n])
		}
		l.must(cmd.Process.Signal(sig))
		n, _ = out.Read(buf)
		if string(buf[:n]) != "got it\n" {
			t.Errorf("%v: the program says %q", sig, buf[:n])
		}
		err = cmd.Wait()
		if cmd.ProcessState.ExitCode() != 9 {
			t.Errorf("%v: %v", sig, err)
		}
	}
}

// TestRunRecord: runs ls and show have the record that --json prints.
func TestRunRecord(t *testing.T) {
	l := newLab(t)
	r := l.run("--json", "run", "--repo", l.smallRepo("repo"), "--", "sh", "-c", "echo to the terminal; echo x >f; exit 5")
	if r.status != 5 || !strings.Contains(r.stderr, "to the terminal") {
		t.Errorf("with --json the program's output goes to standard error: %v", r)
	}
	var record map[string]any
	l.must(json.Unmarshal([]byte(r.stdout), &record))
	for _, k := range []string{"schema", "run", "status", "systems", "isolation", "started", "seconds"} {
		if _, ok := record[k]; !ok {
			t.Errorf("the record has no %q: %s", k, r.stdout)
		}
	}
	id, _ := record["run"].(string)
	var shown map[string]any
	l.json(&shown, "runs", "show", id)
	if shown["run"] != record["run"] || shown["status"] != record["status"] {
		t.Errorf("runs show: %v", shown)
	}
	if ls := l.ok("--json", "runs", "ls"); !strings.Contains(ls, id) {
		t.Errorf("runs ls lacks %s: %s", id, ls)
	}
	for _, table := range [][]string{{"runs", "ls"}, {"ps"}, {"runs", "show", id}, {"inspect", id}} {
		l.ok(table...)
	}
}

// TestS13_NothingOfTheHostToBeFound: a root inside a local run finds neither the source repository nor the store, by
// path or by undoing the mounts; the host's files are read-only.
func TestS13_NothingOfTheHostToBeFound(t *testing.T) {
	l := newLab(t)
	repo := l.smallRepo("repo")
	l.shell(l.dir, "git clone -q --shared repo alt; git -C repo worktree add -q --detach ../linked main; mkdir bound; mount --bind repo bound")
	defer l.shell(l.dir, "umount bound")
	l.writeFile("host-file", "host")
	script := `
		for p in "$D/repo/.git" "$D/repo/README.md" "$D/store/format" "$D/alt/.git/HEAD" "$D/linked/README.md" "$D/bound/README.md"; do
			if [ -e "$p" ]; then echo "visible: $p"; fi
		done
		for p in "$D/repo" "$D/store" "$D/bound" /workspace / /proc; do
			umount "$p" 2>/dev/null && echo "unmounted $p"; umount -l "$p" 2>/dev/null && echo "lazily unmounted $p"
		done
		[ -e "$D/store/format" ] && echo 'store visible after umount'
		mount -o remount,rw / 2>/dev/null && echo 'remounted /'
		(echo x >"$D/host-file") 2>/dev/null && echo 'wrote a host file'
		(echo x >/etc/tine-was-here) 2>/dev/null && echo 'wrote to /etc'
		for p in /proc/[0-9]*; do [ -e "$p/root$D/store/format" ] && echo "by $p/root"; done
		nsenter -t 1 -m test -e "$D/store/format" 2>/dev/null && echo 'by nsenter'
		mknod /tmp/vda b 254 0 2>/dev/null && (head -c1 /tmp/vda >/dev/null) 2>/dev/null && echo 'block device'
		for s in /run/docker.sock /run/containerd/containerd.sock /run/tine/host.sock /var/run/dbus/system_bus_socket; do [ -S $s ] && echo "socket $s"; done
		unshare -m true 2>/dev/null && echo 'has a mount namespace of its own'
		[ "$(ls /proc | grep -c '^[0-9]*$')" -lt 20 ] || echo 'sees the host processes'
		chroot /proc/1/root test -e "$D/store/format" 2>/dev/null && echo 'by chroot'
		exit 0`
	for name, source := range map[string][]string{
		"repository": {"--repo", repo}, "with alternates": {"--repo", l.path("alt")}, "linked worktree": {"--repo", l.path("linked")},
	} {
		r := l.run(append(append([]string{"run"}, source...), "--env", "D="+l.dir, "--", "sh", "-c", script)...)
		if r.status != 0 {
			t.Errorf("%s: %v", name, r)
		}
		out := r.stdout
		if name != "repository" {
			// Only what this source is made of must be hidden; the unrelated clones are the caller's own files.
			var keep []string
			for line := range strings.Lines(out) {
				if !strings.HasPrefix(line, "visible: "+l.path("alt")) && !strings.HasPrefix(line, "visible: "+l.path("linked")) || name == "with alternates" && strings.Contains(line, "/alt/") || name == "linked worktree" && strings.Contains(line, "/linked/") {
					keep = append(keep, line)
				}
			}
			out = strings.Join(keep, "")
		} else {
			out = strings.ReplaceAll(out, "visible: "+l.path("alt/.git/HEAD")+"\n", "")
		}
		if out != "" {
			t.Errorf("%s: %s", name, out)
		}
	}
	l.shell(l.dir, "test $(cat host-file) = host; test ! -e /etc/tine-was-here")
	r := l.run("run", "--repo", repo, "--writable-host", "--env", "D="+l.dir, "--", "sh", "-c", `echo changed >"$D/host-file"`)
	if r.status != 0 {
		t.Error(r)
	}
	l.shell(l.dir, "test $(cat host-file) = changed")
	if runs := l.ok("--json", "runs", "ls"); !strings.Contains(strings.ReplaceAll(runs, " ", ""), `"isolation":"host"`) {
		t.Errorf("no record says isolation: host: %s", clip(runs))
	}
}

// TestRunBuildsGoPrograms: a compiler's work in a fork, with the module cache and GOROOT of the host read-only.
func TestRunBuildsGoPrograms(t *testing.T) {
	l := newLab(t)
	repo := l.mkdir("repo")
	l.shell(repo, `
		git init -q -b main; printf 'module x\n\ngo 1.21\n' >go.mod
		printf 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("built in a fork") }\n' >main.go; git add -A; git commit -q -m x`)
	cmd := l.tineCmd("run", "--repo", repo, "--", "sh", "-ec", "go build -o prog . && ./prog")
	cmd.Env = append(testrepo.Env(), "TINE_STORE="+l.store, "GOFLAGS=-buildvcs=false")
	start := time.Now()
	r := command(t, cmd)
	if r.status != 0 || r.stdout != "built in a fork\n" {
		t.Errorf("%v", r)
	}
	t.Logf("%v", time.Since(start).Round(time.Millisecond))
}
