package integration

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// edits is what a program does to the Go sources: deletions, renamed directories, edits, modes, links.
const edits = `
	rm -r archive; rm bufio/bufio.go; mv container ctr; mv bytes/buffer.go bytes/buf.go
	echo '// edited' >>errors/errors.go; printf 'x' | dd of=fmt/print.go bs=1 seek=10 conv=notrunc 2>/dev/null
	chmod 755 io/io.go; ln io/multi.go io/hard.go; ln -s ../io sort/dir; rm gomain; ln -s other gomain
	mkdir -p new/deep; printf 'binary\0data\377' >new/deep/bin; : >new/empty; rm -r image; echo 'a file now' >image
	rm LICENSE 2>/dev/null || true; rm regexp/regexp.go; mkdir regexp/regexp.go; echo in >regexp/regexp.go/in
	printf 'no newline at the end' >new/nonl; printf 'sp' >'new/sp ace'; printf 'q' >'new/quo"te'; printf 'u' >'new/ü'; mkdir new/emptydir`

// gitSays applies the edits to a clone and gives git's view: "STATUS\tpath" lines, the tree id, and the clone.
func (l *lab) gitSays(repo string) (lines []string, tree, clone string) {
	l.t.Helper()
	clone = l.path("clone")
	l.shell(l.dir, "git clone -q --no-hardlinks '"+repo+"' clone")
	l.shell(clone, edits+"\n git add -A")
	out := l.shell(clone, "git -c core.quotePath=false diff --cached --no-renames --name-status -z HEAD | tr '\\0\\n' '\\n?'")
	w := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	for i := 0; i+1 < len(w); i += 2 {
		lines = append(lines, w[i]+"\t"+w[i+1])
	}
	slices.Sort(lines)
	return lines, l.shell(clone, "git write-tree"), clone
}

// TestChangesAreReportedExactly: summary, fork diff, checkpoint diff and patch of one run agree with git.
func TestChangesAreReportedExactly(t *testing.T) {
	l := newLab(t)
	repo, err := goSource()
	l.must(err)
	want, tree, clone := l.gitSays(repo)
	r := l.run("--json", "run", "--repo", repo, "--keep", "--name", "edited", "--", "sh", "-euc", edits)
	if r.status != 0 {
		t.Fatal(r)
	}
	var record struct {
		Status  int
		Systems []struct {
			Fork, Checkpoint, Tree string
			Sealed                 json.RawMessage
			ChangedFiles           int `json:"changed_files"`
		}
	}
	l.must(json.Unmarshal([]byte(r.stdout), &record))
	if len(record.Systems) != 1 {
		t.Fatalf("record of one system expected: %s", r.stdout)
	}
	sys := record.Systems[0]
	files := strings.Split(l.shell(repo, "git -c core.quotePath=false ls-files"), "\n")
	base, sealed := sys.Checkpoint, sealedID(sys.Sealed)
	if sealed == "" {
		t.Fatalf("nothing sealed: %s", r.stdout)
	}
	if got := l.treeOf(sealed); got != tree {
		t.Errorf("sealed tree %s, git says %s", got, tree)
	}
	if got := nameStatus(l.ok("checkpoint", "diff", base, sealed, "--name-status"), files); !slices.Equal(got, want) {
		t.Errorf("checkpoint diff:\n%s", twoLists(got, want))
	}
	if got := nameStatus(l.ok("fork", "diff", sys.Fork, "--name-status"), files); !slices.Equal(got, want) {
		t.Errorf("fork diff:\n%s", twoLists(got, want))
	}
	if sys.ChangedFiles == 0 {
		t.Errorf("the record says %d changed files", sys.ChangedFiles)
	}
	for _, cmd := range [][]string{{"fork", "patch", sys.Fork}, {"checkpoint", "diff", base, sealed, "--patch"}} {
		r := l.run(cmd...)
		if r.status != 0 {
			t.Fatal(r)
		}
		l.writeFile("patch", r.stdout)
		l.shell(clone, "git reset -q --hard; git clean -qfdx; git apply --check --index ../patch; git apply --index ../patch")
		if got := l.shell(clone, "git write-tree"); got != tree {
			t.Errorf("%v applied gives tree %s, want %s", cmd, got, tree)
		}
	}
	stat := l.ok("fork", "diff", sys.Fork, "--stat")
	if !strings.Contains(stat, "errors/errors.go") {
		t.Errorf("fork diff --stat: %s", clip(stat))
	}
}

// sealedID takes the checkpoint from a record's "sealed": an id, or an object that has one.
func sealedID(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var o struct{ Checkpoint string }
	_ = json.Unmarshal(raw, &o)
	return o.Checkpoint
}

// nameStatus reads "STATUS<tab>PATH" lines and says the same in git's terms, which knows files only: a directory that
// was renamed or removed is every file of it in base, another name of a file is an added file. The workspace's .git is
// left out.
func nameStatus(out string, base []string) []string {
	set := map[string]bool{}
	below := func(dir string, do func(file string)) {
		for _, f := range base {
			if strings.HasPrefix(f, dir) {
				do(f)
			}
		}
	}
	for line := range strings.Lines(out) {
		w := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for i := range w {
			w[i] = unquote(w[i])
		}
		path := w[len(w)-1]
		dir := strings.HasSuffix(path, "/")
		plain := strings.TrimSuffix(path, "/")
		switch {
		case len(w) < 2:
			set["not understood: "+line] = true
		case plain == ".git":
		case strings.HasPrefix(w[0], "R") && dir:
			below(w[1], func(f string) {
				set["D\t"+f] = true
				set["A\t"+path+strings.TrimPrefix(f, w[1])] = true
			})
		case strings.HasPrefix(w[0], "R"):
			set["D\t"+w[1]] = true
			set["A\t"+path] = true
		case w[0] == "D" && dir:
			below(path, func(f string) { set["D\t"+f] = true })
		case w[0] == "T" && dir:
			set["D\t"+plain] = true
		case w[0] == "T" && slices.ContainsFunc(base, func(f string) bool { return strings.HasPrefix(f, path+"/") }):
			below(path+"/", func(f string) { set["D\t"+f] = true })
			set["A\t"+path] = true
		case dir:
		case w[0] == "H":
			set["A\t"+path] = true
		default:
			set[w[0]+"\t"+path] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// unquote reads a name as git quotes it.
func unquote(s string) string {
	if out, err := strconv.Unquote(s); err == nil && strings.HasPrefix(s, `"`) {
		return out
	}
	return s
}

// twoLists shows what only one side has.
func twoLists(got, want []string) string {
	var b strings.Builder
	for _, g := range got {
		if !slices.Contains(want, g) {
			b.WriteString("  only tine: " + g + "\n")
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			b.WriteString("  only git:  " + w + "\n")
		}
	}
	return clip(b.String())
}

// TestSummarySaysWhatChanged: the summary on standard error has status, time, files changed and the checkpoint.
func TestSummarySaysWhatChanged(t *testing.T) {
	l := newLab(t)
	repo := l.smallRepo("repo")
	r := l.run("run", "--repo", repo, "--", "sh", "-c", "rm docs/empty; mv src s; echo x >new; chmod 644 run.sh; exit 3")
	if r.status != 3 {
		t.Errorf("the program's status is 3: %v", r)
	}
	for _, w := range []string{"3", "changed", "checkpoint"} {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("no %q in the summary: %s", w, r.stderr)
		}
	}
	r = l.run("run", "--repo", repo, "--", "true")
	if r.status != 0 || strings.Contains(r.stderr, "sealed") {
		t.Errorf("nothing changed, nothing sealed: %v", r)
	}
}
