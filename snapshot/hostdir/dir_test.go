package hostdir

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// Whatever has taken a name's place is not followed and not waited for.
func TestNothingIsFollowed(t *testing.T) {
	dir := t.TempDir()
	os.Mkdir(dir+"/real", 0o755)
	os.WriteFile(dir+"/file", []byte("x"), 0o644)
	os.Symlink("real", dir+"/dirlink")
	os.Symlink("file", dir+"/filelink")
	unix.Mkfifo(dir+"/fifo", 0o644)
	d := open(t, dir)
	if _, err := d.OpenDir("dirlink"); err == nil {
		t.Error("a symlink was entered")
	}
	if _, err := d.OpenFile("filelink"); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a symlink was opened: %v", err)
	}
	if _, err := d.OpenFile("fifo"); err == nil {
		t.Error("a FIFO was opened")
	}
	if _, err := d.OpenFile("real"); err == nil {
		t.Error("a directory was opened")
	}
	f, err := d.OpenFile("file")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if st, err := d.Lstat("dirlink"); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		t.Errorf("%+v %v", st, err)
	}
	if names, err := d.Names(); err != nil || !reflect.DeepEqual(names, []string{"dirlink", "fifo", "file", "filelink", "real"}) {
		t.Errorf("%q %v", names, err)
	}
}

func TestHoles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sparse")
	w, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w.Truncate(10 << 20)
	w.WriteAt([]byte("x"), 4<<20)
	w.Close()
	f, err := open(t, filepath.Dir(path)).OpenFile("sparse")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if start, end := f.NextData(0); start == 0 {
		t.Skip("the file system knows no holes")
	} else if start > 4<<20 || start < 3<<20 || end <= 4<<20 || end > 5<<20 {
		t.Errorf("data at %d to %d", start, end)
	}
	if start, end := f.NextData(6 << 20); start != 10<<20 || end != 10<<20 {
		t.Errorf("at the end: %d to %d", start, end)
	}
}

func TestForeign(t *testing.T) {
	for path, want := range map[string]bool{"/proc": true, "/sys": true, t.TempDir(): false, "/": false} {
		what, err := open(t, path).Foreign()
		if err != nil || (what != "") != want {
			t.Errorf("%s: %q %v", path, what, err)
		}
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{`/a\040b`: "/a b", `/a\134x`: `/a\x`, `/plain`: "/plain", `/end\04`: `/end\04`} {
		if got := unescape(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
