package gitimport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"testing"
	"time"

	"tine/snapshot/content"
	"tine/snapshot/gitimport/objects"
)

// importCounting imports and tells which object contents were read.
func importCounting(t testing.TB, req Request) (*Result, objects.Counts) {
	t.Helper()
	r, err := Locate(req.Repo)
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t)
	hold, err := s.Shared(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Release()
	im := &importer{req: req, store: s, repo: r, db: r.Objects(), blobAt: map[objects.ID]int{}}
	defer im.db.Close()
	im.trees = newTrees(r, im.db)
	res, err := im.run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return res, im.db.Counts()
}

// fastImport makes a repository of n files in a second, through git fast-import.
func fastImport(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "config", "gc.auto", "0")
	var b bytes.Buffer
	rnd := rand.New(rand.NewSource(1))
	fmt.Fprintf(&b, "commit refs/heads/main\ncommitter C <c@example.org> 1700000000 +0000\ndata 4\nmany\n")
	for i := range n {
		text := fmt.Sprintf("file %d\n%s", i, strings.Repeat(fmt.Sprintf("%x\n", rnd.Int63()), rnd.Intn(100)))
		fmt.Fprintf(&b, "M 100644 inline d%d/e%d/f%d\ndata %d\n%s\n", i/2500, i/50, i, len(text), text)
	}
	in := t.TempDir() + "/stream"
	os.WriteFile(in, b.Bytes(), 0o644)
	f, err := os.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	gitIn(t, dir, f, "fast-import", "--quiet")
	return dir
}

// The import of a large commit takes at most half of git worktree add's time and reads no blob.
func TestImportReadsNoBlobAndTakesHalfOfWorktreeAdd(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n = 2_000
	}
	src := fastImport(t, n)
	start := time.Now()
	res, counts := importCounting(t, Request{Repo: src})
	took := time.Since(start)
	if counts.Blobs != 0 || res.Files != int64(n) {
		t.Fatalf("%d files, read %+v", res.Files, counts)
	}
	start = time.Now()
	git(t, src, "worktree", "add", "-q", "--detach", t.TempDir()+"/tree")
	add := time.Since(start)
	t.Logf("%d files: import %v, git worktree add %v", n, took, add)
	if took > add/2 && !testing.Short() {
		t.Errorf("import %v, git worktree add %v", took, add)
	}
}

func largeSample(t testing.TB) (dir string, big []byte) {
	dir = sample(t)
	big = make([]byte, content.MaxSmall+12345)
	rand.New(rand.NewSource(7)).Read(big)
	write(t, dir+"/big.bin", string(big), 0o644)
	write(t, dir+"/zeroes.bin", string(make([]byte, 3*content.MaxSmall)), 0o644)
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "large")
	write(t, dir+"/big.bin", string(big[:content.MaxSmall+99]), 0o755)
	git(t, dir, "commit", "-q", "-a", "-m", "large, changed")
	return dir, big
}

func TestLargeFiles(t *testing.T) {
	src, big := largeSample(t)
	for _, req := range []Request{{Depth: 2}, {Depth: 2, Eager: true}, {Depth: 1, Dirty: true}} {
		req.Repo = src
		s := newStore(t)
		res := mustImport(t, s, req)
		files, err := s.Files(res.ID)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := lookup(t, files, "big.bin")
		if n.Content.Algo != content.Tree256 || n.Size != content.MaxSmall+99 {
			t.Errorf("%+v: %+v", req, n)
		}
		dir := exported(t, s, res.ID)
		cleanGit(t, dir)
		got, _ := os.ReadFile(dir + "/big.bin")
		if !bytes.Equal(got, big[:content.MaxSmall+99]) {
			t.Error("big.bin differs")
		}
	}
	// Two imports, one id, though one of the packs has the large blob as a delta.
	a := mustImport(t, newStore(t), Request{Repo: src, Depth: 2})
	git(t, src, "gc", "-q", "--aggressive", "--prune=now")
	if b := mustImport(t, newStore(t), Request{Repo: src, Depth: 2}); a.ID != b.ID {
		t.Errorf("%s and %s", a.ID, b.ID)
	}
}

// An eager checkpoint doesn't need its repository any more, the history's blobs included.
func TestEagerOutlivesTheRepository(t *testing.T) {
	src, _ := largeSample(t)
	s := newStore(t)
	res := mustImport(t, s, Request{Repo: src, FullHistory: true, Eager: true})
	if res.Source != "" {
		t.Error("a source was registered")
	}
	os.RemoveAll(src)
	dir := exported(t, s, res.ID)
	cleanGit(t, dir)
	git(t, dir, "checkout", "-q", "HEAD~1")
	cleanGit(t, dir)
}

// O5: a repository that is gone, or lies, gives errors that name the content, and no wrong bytes.
func TestO5_LazyContentsAreCheckedOrMissing(t *testing.T) {
	src := sample(t)
	s := newStore(t)
	res := mustImport(t, s, Request{Repo: src})
	files, err := s.Files(res.ID)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := lookup(t, files, "README")
	blob := git(t, src, "rev-parse", "HEAD:README")
	path := src + "/.git/objects/" + blob[:2] + "/" + blob[2:]
	good, _ := os.ReadFile(path)
	other := git(t, src, "rev-parse", "HEAD:bin/run.sh")
	wrong, _ := os.ReadFile(src + "/.git/objects/" + other[:2] + "/" + other[2:])
	os.Chmod(path, 0o644)
	os.WriteFile(path, wrong, 0o644)
	var corrupt *content.CorruptError
	if _, err := files.OpenFile(n); !errors.As(err, &corrupt) {
		t.Errorf("wrong bytes: %v", err)
	}
	os.Remove(path)
	var missing *content.MissingError
	if _, err := files.OpenFile(n); !errors.As(err, &missing) || !strings.Contains(err.Error(), blob) {
		t.Errorf("no bytes: %v", err)
	}
	os.WriteFile(path, good, 0o644)
	if readNode(t, files, n) != "hello again\n" {
		t.Error("it doesn't recover")
	}
	// Read once, it is the store's.
	os.RemoveAll(src)
	if readNode(t, files, n) != "hello again\n" {
		t.Error("it wasn't kept")
	}
	if n, _ := lookup(t, files, "bin/run.sh"); true {
		if _, err := files.OpenFile(n); !errors.As(err, &missing) {
			t.Errorf("without a repository: %v", err)
		}
	}
}

func TestAttributesAreWarnedOf(t *testing.T) {
	src := sample(t)
	write(t, src+"/.gitattributes", "# x\n* text=auto eol=lf\n*.bat eol=crlf\n\"a b\" ident\n", 0o644)
	write(t, src+"/src/.gitattributes", "*.bin filter=lfs diff=lfs -text\n", 0o644)
	write(t, src+"/src/x.bat", "echo\n", 0o644)
	git(t, src, "add", "-A")
	git(t, src, "commit", "-q", "-m", "attributes")
	s := newStore(t)
	res := mustImport(t, s, Request{Repo: src})
	if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "(eol=crlf, filter=lfs, ident)") {
		t.Errorf("%q", res.Warnings)
	}
	// A file is its blob's bytes.
	files, _ := s.Files(res.ID)
	n, _ := lookup(t, files, "src/x.bat")
	if readNode(t, files, n) != "echo\n" {
		t.Error("converted")
	}
}
