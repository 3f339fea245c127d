package integration

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRefusedImports: what can't be imported is refused by name, and the store has nothing of it afterwards.
func TestRefusedImports(t *testing.T) {
	l := newLab(t)
	repo := l.smallRepo("repo")
	l.shell(l.dir, `
		mkdir plain; git init -q -b main empty
		git init -q --object-format=sha256 -b main sha256; (cd sha256; echo x >f; git add f; git commit -q -m x)
		git -C repo config uploadpack.allowFilter true
		git clone -q --no-local --filter=blob:none --no-checkout "file://$PWD/repo" partial; git -C partial config remote.origin.url /nonexistent
		cp -a repo gap; t=$(git -C gap rev-parse 'HEAD:src'); rm -f gap/.git/objects/$(echo $t | cut -c1-2)/$(echo $t | cut -c3-)
		cp -a repo damaged; t=$(git -C damaged rev-parse 'HEAD^{tree}'); p=damaged/.git/objects/$(echo $t | cut -c1-2)/$(echo $t | cut -c3-)
		chmod 644 $p; printf 'garbage' | dd of=$p bs=1 seek=4 conv=notrunc 2>/dev/null`)
	l.ok("import", "git", repo)
	before := l.storeFiles()
	for _, c := range []struct {
		name  string
		words []string
		args  []string
	}{
		{"not there", []string{"nowhere"}, []string{l.path("nowhere")}},
		{"not a repository", []string{"not a git repository"}, []string{l.path("plain")}},
		{"unknown revision", []string{"no-such-branch"}, []string{repo, "no-such-branch"}},
		{"unknown full id", []string{strings.Repeat("12", 20)}, []string{repo, strings.Repeat("12", 20)}},
		{"empty repository", []string{"empty"}, []string{l.path("empty")}},
		{"SHA-256", []string{"sha256"}, []string{l.path("sha256")}},
		{"partial clone", []string{"partial"}, []string{l.path("partial")}},
		{"a tree is missing", nil, []string{l.path("gap")}},
		{"damaged tree", nil, []string{l.path("damaged")}},
		{"no such subpath", []string{"nope"}, []string{repo, "--subpath", "nope"}},
	} {
		r := l.run(append([]string{"import", "git"}, c.args...)...)
		if r.status < 1 || r.status > 3 {
			t.Errorf("%s: want status 1, 2 or 3 of %v", c.name, r)
		}
		for _, w := range append(c.words, "tine") {
			if !strings.Contains(strings.ToLower(strings.ReplaceAll(r.stderr, "-", "")), strings.ReplaceAll(w, "-", "")) {
				t.Errorf("%s: want %q in the message of %v", c.name, w, r)
			}
		}
		if len(strings.Split(strings.TrimSpace(r.stderr), "\n")) > 3 || strings.Contains(r.stderr, "goroutine") {
			t.Errorf("%s: not a message for people: %v", c.name, r)
		}
		if after := l.storeFiles(); after != before {
			t.Errorf("%s left something behind:\n%s\nwas\n%s", c.name, after, before)
		}
	}
	// A failure before there is a store makes none.
	other := *l
	other.store = l.path("never")
	other.fails(1, nil, "import", "git", l.path("nowhere"))
	if _, err := os.Stat(other.store); err == nil {
		t.Error("a refused import made a store")
	}
	other.run("checkpoint", "ls")
	other.run("fork", "ls")
	if _, err := os.Stat(other.store); err == nil {
		t.Error("a read made a store")
	}
}

// storeFiles lists what the store holds, but for logs.
func (l *lab) storeFiles() string {
	l.t.Helper()
	return l.shell(l.dir, `find store -type f ! -name '*.log' ! -name '*.jsonl' | sort; true`)
}

// TestInterruptedImport: SIGINT leaves nothing, SIGKILL nothing that hinders; the next import gives the id that it
// always gives.
func TestInterruptedImport(t *testing.T) {
	l := newLab(t)
	repo, err := largeRepo()
	l.must(err)
	want := ""
	for n, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL} {
		lab := *l
		lab.store = l.path("store" + itoa(n))
		cmd := lab.tineCmd("import", "git", repo)
		if n == 0 {
			cmd = lab.tineCmd("import", "git", repo, "--eager")
		}
		l.must(cmd.Start())
		time.Sleep([]time.Duration{700, 200, 50, 200, 400}[n] * time.Millisecond)
		_ = cmd.Process.Signal(sig)
		err := cmd.Wait()
		finished := err == nil
		ls := "[]"
		if _, err := os.Stat(lab.store); err == nil {
			ls = strings.TrimSpace(lab.ok("--json", "checkpoint", "ls"))
		}
		if !finished && ls != "[]" {
			t.Errorf("%v: interrupted, and there is a checkpoint: %s", sig, ls)
		}
		if sig != syscall.SIGKILL {
			if code := cmd.ProcessState.ExitCode(); !finished && code != 1 && code != 128+int(sig) {
				t.Errorf("%v: exit status %d", sig, code)
			}
			if left := lab.storeLeftovers(); left != nil {
				t.Errorf("%v: %v", sig, left)
			}
		}
		i := lab.importGit(repo)
		if want == "" {
			want = i.Checkpoint
		}
		if i.Checkpoint != want {
			t.Errorf("after %v: checkpoint %s, want %s", sig, i.Checkpoint, want)
		}
		lab.ok("fsck", "--all")
		if sig == syscall.SIGKILL {
			// Nobody was left to remove an unfinished file; a repair does.
			lab.ok("fsck", "--all", "--repair")
		}
		if left := lab.storeLeftovers(); left != nil {
			t.Errorf("after %v and a whole import: %v", sig, left)
		}
		t.Logf("%v: finished before the signal: %v", sig, finished)
	}
}
