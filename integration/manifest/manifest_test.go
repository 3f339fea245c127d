package manifest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tree makes a directory with one thing of each kind that an ordinary user can make.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "d/e"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "d/f"), []byte("text"), 0o640))
	must(os.Link(filepath.Join(dir, "d/f"), filepath.Join(dir, "d/e/hard")))
	must(os.Symlink("../f", filepath.Join(dir, "d/e/soft")))
	must(unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	must(os.WriteFile(filepath.Join(dir, "bytes-\xff\n"), nil, 0o600))
	return dir
}

func TestEqualTreesHaveNoDifference(t *testing.T) {
	a := tree(t)
	b := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", a, b).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	x, err := Take(a, Options{})
	if err != nil {
		t.Fatal(err)
	}
	y, err := Take(b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d := Compare("a", x, "b", y, Rules{}); d != nil {
		t.Fatalf("a copy differs: %q", d)
	}
	if d := Inconsistent(x); d != nil {
		t.Fatalf("an ext4 tree contradicts itself: %q", d)
	}
	if len(x) != 8 {
		t.Fatalf("%d entries, want 8: %v", len(x), x)
	}
}

func TestEachDifferenceIsFound(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"mode":    func(d string) error { return os.Chmod(d+"/d/f", 0o644) },
		"bytes":   func(d string) error { return rewrite(d+"/d/f", "tExt") },
		"mtime":   func(d string) error { return os.Chtimes(d+"/d/f", time.Time{}, time.Unix(1, 1)) },
		"removed": func(d string) error { return os.Remove(d + "/pipe") },
		"added":   func(d string) error { return os.Mkdir(d+"/new", 0o755) },
		"link":    func(d string) error { return relink(d) },
		"target": func(d string) error {
			return errorOf(os.Remove(d+"/d/e/soft"), os.Symlink("../g", d+"/d/e/soft"))
		},
		"xattr": func(d string) error { return unix.Setxattr(d+"/d/f", "user.k", []byte("v"), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t)
			x, err := Take(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := change(dir); err != nil {
				if strings.Contains(err.Error(), "not supported") {
					t.Skip("this file system has no user xattrs")
				}
				t.Fatal(err)
			}
			y, err := Take(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if Compare("before", x, "after", y, Rules{NoDirMtime: true}) == nil {
				t.Fatal("the change was not seen")
			}
		})
	}
}

// rewrite changes bytes and puts the times back, so that only the content can tell.
func rewrite(path, text string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	return errorOf(os.WriteFile(path, []byte(text), 0), os.Chtimes(path, time.Time{}, fi.ModTime()))
}

// relink replaces a hard link by an equal file.
func relink(dir string) error {
	out, err := exec.Command("sh", "-c", "cd \"$1\" && cp -p d/f d/g && mv d/g d/e/hard", "sh", dir).CombinedOutput()
	if err != nil {
		return errorOf(err, os.ErrInvalid)
	}
	_ = out
	return nil
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestDeeperThanPathMax(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("n", 200)
	for range 30 {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_DIRECTORY|unix.O_RDONLY, 0)
		unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	unix.Close(fd)
	m, err := Take(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(m) != 31 {
		t.Fatalf("%d entries, want 31", len(m))
	}
}
