package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tine/integration/testrepo"
)

// caseBase is the directory that each script in testdata/cases finds: everything in it is from the base.
const caseBase = `
	echo 'first line
second line' >f; mkdir -p dir/sub many open; seq 1 1000 >dir/one; seq 1 20 >dir/two; echo deep >dir/sub/deep; ln -s f slink
	yes 'some text to fill a file with' | head -c 5000000 >big; truncate -s 3M sparse; echo end >>sparse
	echo h >hl1; ln hl1 hl2; for i in $(seq 0 199); do : >many/entry-$i; done
	chmod 777 open; echo w >open/writable; chmod 666 open/writable
	find . -exec touch -h -d '2012-12-12 12:12:12.123' {} +`

const pythonPrelude = "import os, mmap, ctypes, fcntl, sys\n"

// TestCases runs every script of testdata/cases, each named after what broke for users of other systems: first in a
// directory on ext4, which proves the script, then in a fresh fork.
func TestCases(t *testing.T) {
	requireTools(t, "bash", "python3", "sqlite3", "setfacl", "setpriv", "inotifywait", "flock", "git")
	l := newLab(t)
	base := filepath.Join(l.ext4("ext4"), "base")
	l.shell(l.dir, "mkdir '"+base+"'")
	l.shell(base, caseBase)
	c := l.importDir(base).Checkpoint
	scripts, err := filepath.Glob("testdata/cases/*")
	l.must(err)
	if len(scripts) < 20 {
		t.Fatalf("only %d scripts", len(scripts))
	}
	for _, s := range scripts {
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(s), ".sh"), ".py")
		text, err := os.ReadFile(s)
		l.must(err)
		t.Run(name, func(t *testing.T) {
			lab := *l
			lab.t = t
			ref := filepath.Join(filepath.Dir(base), "ref")
			lab.shell(l.dir, "rm -rf '"+ref+"'; cp -a '"+base+"' '"+ref+"'")
			if r := runCase(t, s, string(text), ref); r.status != 0 {
				t.Fatalf("the script fails on ext4: %v", r)
			}
			m := lab.path("m-" + name)
			srv := lab.mount(lab.fork(c), m)
			if r := runCase(t, s, string(text), m); r.status != 0 {
				t.Errorf("%v", r)
			}
			srv.stop()
		})
	}
}

// runCase runs a script with dir as its working directory.
func runCase(t *testing.T, name, text, dir string) result {
	t.Helper()
	cmd := exec.Command("bash", "-eu", "-c", text)
	if strings.HasSuffix(name, ".py") {
		cmd = exec.Command("python3", "-c", pythonPrelude+text)
	}
	cmd.Dir, cmd.Env = dir, testrepo.Env()
	return command(t, cmd)
}
