package gitimport

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tine/snapshot"
	"tine/snapshot/content"
	"tine/snapshot/export"
	"tine/snapshot/image"
)

// gitEnv keeps the machine's own git configuration out of the tests.
func gitEnv(extra ...string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C", "TZ=UTC",
		"GIT_AUTHOR_NAME=A U Thor", "GIT_AUTHOR_EMAIL=author@example.org", "GIT_AUTHOR_DATE=1700000000 +0100",
		"GIT_COMMITTER_NAME=C O Mitter", "GIT_COMMITTER_EMAIL=committer@example.org", "GIT_COMMITTER_DATE=1700000100 +0100",
	}
	return append(env, extra...)
}

func tryGit(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, gitEnv()
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSuffix(string(out), "\n"), err
}

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := tryGit(dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func write(t testing.TB, path, text string, perm os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	if err := os.WriteFile(path, []byte(text), perm); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, perm); err != nil {
		t.Fatal(err)
	}
}

// sample makes a repository with three commits: links, executables, empty files, odd names, a rename, a submodule entry.
func sample(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "source")
	os.Mkdir(dir, 0o755)
	git(t, dir, "init", "-q", "-b", "trunk")
	git(t, dir, "config", "gc.auto", "0")
	write(t, dir+"/README", "hello\n", 0o644)
	write(t, dir+"/bin/run.sh", "#!/bin/sh\necho run\n", 0o755)
	write(t, dir+"/src/a/b/c/deep.txt", "deep\n", 0o644)
	write(t, dir+"/src/a.txt", "a file beside a directory of that name\n", 0o644)
	write(t, dir+"/old/secret.txt", "the answer is 42\n", 0o644)
	write(t, dir+"/empty", "", 0o644)
	write(t, dir+"/odd \xff\n\"name", "odd\n", 0o644)
	if err := os.Symlink("src/a/b", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "first")
	os.MkdirAll(dir+"/tests", 0o755)
	git(t, dir, "mv", "old/secret.txt", "tests/secret.txt")
	write(t, dir+"/README", "hello again\n", 0o644)
	git(t, dir, "commit", "-q", "-a", "-m", "second")
	git(t, dir, "update-index", "--add", "--cacheinfo", "160000,1234567890123456789012345678901234567890,modules/sub")
	write(t, dir+"/.gitmodules", "[submodule \"sub\"]\n\tpath = modules/sub\n\turl = https://example.org/sub\n", 0o644)
	git(t, dir, "add", ".gitmodules")
	git(t, dir, "commit", "-q", "-m", "third")
	os.MkdirAll(dir+"/modules/sub", 0o755)
	git(t, dir, "tag", "-a", "-m", "annotated", "v1", "HEAD~1")
	return dir
}

func newStore(t testing.TB) *snapshot.Store {
	t.Helper()
	s, err := snapshot.Open(filepath.Join(t.TempDir(), "store"), snapshot.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func mustImport(t testing.TB, s *snapshot.Store, req Request) *Result {
	t.Helper()
	res, err := Import(context.Background(), s, req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// exported writes a checkpoint to a new directory, with modes and times.
func exported(t testing.TB, s *snapshot.Store, id string) string {
	t.Helper()
	files, err := s.Files(id)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "export")
	if err := export.ToDir(context.Background(), files, dir, export.Options{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func readNode(t testing.TB, files image.Files, n image.Node) string {
	t.Helper()
	r, err := files.OpenFile(n)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b strings.Builder
	if err := content.WriteTo(&b, r); err != nil {
		t.Fatal(err)
	}
	if int64(b.Len()) != n.Size {
		t.Fatalf("inode %d: %d bytes, its size is %d", n.Ino, b.Len(), n.Size)
	}
	return b.String()
}

// lookup finds a path in a checkpoint.
func lookup(t testing.TB, files image.Files, path string) (image.Node, bool) {
	t.Helper()
	ino := image.Root
	for _, name := range strings.Split(path, "/") {
		d, err := files.Lookup(ino, name)
		if err != nil {
			return image.Node{}, false
		}
		ino = d.Ino
	}
	n, err := files.Node(ino)
	if err != nil {
		t.Fatal(err)
	}
	return n, true
}

// cleanGit is what must hold of every workspace's git.
func cleanGit(t testing.TB, dir string) {
	t.Helper()
	if out := git(t, dir, "status", "--porcelain", "--untracked-files=all", "--ignored"); out != "" {
		t.Errorf("status is not clean:\n%s", out)
	}
	fsck(t, dir)
}

func fsck(t testing.TB, dir string) {
	t.Helper()
	cmd := exec.Command("git", "fsck", "--full", "--strict", "--no-progress")
	cmd.Dir, cmd.Env = dir, gitEnv()
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("fsck: %v\n%s", err, out)
	}
}

func sourceFiles(t testing.TB, src, rev string) string {
	t.Helper()
	return git(t, src, "ls-tree", "-r", "-z", "--full-tree", rev)
}

// mktree writes a tree with one entry that git itself would refuse.
func mktree(t testing.TB, dir, blob, name string) string {
	t.Helper()
	id, err := hex.DecodeString(blob)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "hash-object", "-w", "-t", "tree", "--literally", "--stdin")
	cmd.Dir, cmd.Env, cmd.Stdin = dir, gitEnv(), strings.NewReader("100644 "+name+"\x00"+string(id))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("hash-object: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// gitIn is git with an input.
func gitIn(t testing.TB, dir string, in *os.File, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, gitEnv(), in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}
