package snapshot

import (
	"context"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tine/snapshot/content"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@t"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// The same files in an image and in a git work tree have the same tree id.
func TestL3_TreeIDIsGits(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	big := strings.Repeat("0123456789abcdef", (content.MaxSmall>>4)+1)
	entries := []imagetest.Entry{
		imagetest.File("a", "1", 0o644), imagetest.File("a.c", "2", 0o600), imagetest.File("a/x", "", 0o755),
		imagetest.File("a0", "3", 0o755), imagetest.File("run", "#!", 0o744), imagetest.File("notrun", "#!", 0o611),
		imagetest.Symlink("a-link", "a/x"), imagetest.File("b/c/d/e", "deep", 0o640), imagetest.File("\xff\xfe", "not UTF-8", 0o644),
		imagetest.File("big", big, 0o644), imagetest.Hardlink("also", "a.c"),
	}
	entries = entries[1:] // "a" is a directory here
	for _, e := range entries {
		p := filepath.Join(dir, e.Path)
		os.MkdirAll(filepath.Dir(p), 0o755)
		var err error
		switch {
		case e.Link != "":
			err = os.Link(filepath.Join(dir, e.Link), p)
		case e.Node.Mode>>12 == 10:
			err = os.Symlink(e.Data, p)
		default:
			err = os.WriteFile(p, []byte(e.Data), os.FileMode(e.Node.Mode&0o777))
			os.Chmod(p, os.FileMode(e.Node.Mode&0o777))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "add", "-A")
	git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("12", 20)+",sub")
	want := git(t, dir, "write-tree")

	link, _ := hex.DecodeString(strings.Repeat("12", 20))
	entries = append(entries, imagetest.File(".git/config", "x", 0o644), imagetest.Dir("empty/er", 0o755),
		imagetest.Special("fifo", 0o010644, 0), imagetest.Special("dev/null", 0o020666, 0x103),
		imagetest.Dir("sub", 0o755).With(func(n *image.Node) { n.Gitlink = link }))
	s := newStore(t)
	hold(t, s)
	c, err := s.Publish(context.Background(), draft(t, s, entries...))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // computed, remembered
		if got, err := s.TreeID(context.Background(), c.ID); err != nil || got != want {
			t.Fatalf("%s, %v; want %s", got, err, want)
		}
	}
	// A file in the submodule's directory: an ordinary directory from then on.
	git(t, dir, "rm", "-q", "--cached", "sub")
	os.MkdirAll(filepath.Join(dir, "sub"), 0o755)
	os.WriteFile(filepath.Join(dir, "sub/f"), []byte("f"), 0o644)
	git(t, dir, "add", "-A")
	c, err = s.Publish(context.Background(), draft(t, s, append(entries, imagetest.File("sub/f", "f", 0o644))...))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.TreeID(context.Background(), c.ID); err != nil || got != git(t, dir, "write-tree") {
		t.Fatal(got, err)
	}
}

func TestTreeIDOfNothing(t *testing.T) {
	s := newStore(t)
	hold(t, s)
	c, err := s.Publish(context.Background(), draft(t, s))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.TreeID(context.Background(), c.ID); got != "4b825dc642cb6eb9a060e54bf8d69288fbee4904" {
		t.Fatal(got, err)
	}
}

// The git id of a large content is known from storing it; of one that was put together from known chunks it is computed once.
func TestGitIDOfLargeContents(t *testing.T) {
	s := newStore(t)
	hold(t, s)
	known := func(id content.ID) (n int) {
		s.segs.find(gitIDKey(id, content.SHA1), func(location) bool { n++; return true })
		return n
	}
	data := pattern(1, content.MaxSmall+content.ChunkSize+5)
	id, err := s.Put(data, content.SHA1)
	if err != nil || known(id) != 1 {
		t.Fatal(known(id), err)
	}
	changed := append([]byte("x"), data[1:]...)
	sparse := append(make([]byte, 10*content.ChunkSize), 'x')
	id2, err := s.PutChanged(content.FromBytes(changed), int64(len(changed)), id, func(i int) bool { return i == 0 }, content.SHA1)
	if err != nil || known(id2) != 0 {
		t.Fatal(known(id2), err)
	}
	id3, err := s.Put(sparse, content.SHA1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id   content.ID
		data []byte
	}{{id, data}, {id2, changed}, {id3, sparse}} {
		for range 2 {
			if got, err := s.GitID(c.id, content.SHA1); err != nil || got != content.BlobID(c.data, content.SHA1) || known(c.id) != 1 {
				t.Fatal(got, err)
			}
		}
		if got, err := s.GitID(c.id, content.SHA256); err != nil || got != content.BlobID(c.data, content.SHA256) {
			t.Fatal(got, err)
		}
	}
}
