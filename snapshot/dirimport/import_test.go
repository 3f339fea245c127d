package dirimport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tine/snapshot"
	"tine/snapshot/content"
	"tine/snapshot/image"
)

func newStore(t testing.TB) *snapshot.Store {
	t.Helper()
	s, err := snapshot.Open(filepath.Join(t.TempDir(), "store"), snapshot.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// zoo makes a directory with one of everything. Owners, devices and trusted attributes need root, which the project's
// tests are run as.
func zoo(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "zoo")
	must(t, os.MkdirAll(dir+"/d/e", 0o755))
	w := func(name, text string, perm os.FileMode) {
		must(t, os.WriteFile(dir+"/"+name, []byte(text), perm))
		must(t, os.Chmod(dir+"/"+name, perm))
	}
	w("plain", "plain\n", 0o640)
	w("empty", "", 0o000)
	w("suid", "s", 0o755)
	must(t, unix.Chmod(dir+"/suid", 0o6755))
	w("d/one", "linked\n", 0o600)
	must(t, os.Link(dir+"/d/one", dir+"/two"))
	must(t, os.Link(dir+"/d/one", dir+"/d/e/three"))
	w("bytes \xff\xfe\n", "odd name", 0o644)
	w(strings.Repeat("n", 255), "long name", 0o644)
	must(t, os.Symlink("plain", dir+"/link"))
	must(t, os.Symlink("nowhere/\xff", dir+"/dangling"))
	must(t, os.Link(dir+"/link", dir+"/linked-link"))
	must(t, unix.Mkfifo(dir+"/fifo", 0o620))
	must(t, unix.Mknod(dir+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	must(t, unix.Mknod(dir+"/block", unix.S_IFBLK|0o660, int(unix.Mkdev(259, 70000))))
	must(t, unix.Mknod(dir+"/socket", unix.S_IFSOCK|0o600, 0))
	must(t, os.Mkdir(dir+"/sticky", 0o755))
	must(t, unix.Chmod(dir+"/sticky", 0o3777))
	must(t, os.Lchown(dir+"/plain", 1234, 5678))
	must(t, os.Lchown(dir+"/link", 7, 8))
	must(t, unix.Setxattr(dir+"/plain", "user.colour", []byte("blue\x00x"), 0))
	must(t, unix.Setxattr(dir+"/plain", "user.a", nil, 0))
	must(t, unix.Setxattr(dir+"/d", "trusted.t", []byte("t"), 0))
	must(t, unix.Setxattr(dir+"/suid", "security.capability", []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0))
	acl := "\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x04\x00\xe8\x03\x00\x00\x04\x00\x04\x00\xff\xff\xff\xff\x10\x00\x04\x00\xff\xff\xff\xff\x20\x00\x04\x00\xff\xff\xff\xff"
	must(t, unix.Setxattr(dir+"/two", "system.posix_acl_access", []byte(acl), 0))
	must(t, unix.Setxattr(dir+"/d/e", "system.posix_acl_default", []byte(acl), 0))
	sparse, err := os.Create(dir + "/sparse")
	must(t, err)
	must(t, sparse.Truncate(3<<30+17))
	_, err = sparse.WriteAt([]byte("data"), 1<<30+5)
	must(t, err)
	must(t, sparse.Close())
	big := make([]byte, content.MaxSmall+100)
	rand.New(rand.NewSource(3)).Read(big)
	w("big", string(big), 0o644)
	n := int64(0)
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		n++
		ts := []unix.Timespec{{Sec: 1500000000 + n, Nsec: n}, {Sec: 1400000000 - n*1e8*20, Nsec: 999999999 - n}}
		return errors.Join(err, unix.UtimesNanoAt(unix.AT_FDCWD, path, ts, unix.AT_SYMLINK_NOFOLLOW))
	}))
	return dir
}

// compare walks directory and checkpoint side by side.
func compare(t *testing.T, files image.Files, ino uint64, path string, seen map[uint64]uint64) {
	t.Helper()
	n, err := files.Node(ino)
	must(t, err)
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	if had, ok := seen[st.Ino]; ok && had != ino {
		t.Errorf("%q: inode %d, another name has %d", path, ino, had)
	}
	seen[st.Ino] = ino
	mtime := image.Time{Sec: st.Mtim.Sec, Nsec: uint32(st.Mtim.Nsec)}
	if n.Mode != st.Mode || n.UID != st.Uid || n.GID != st.Gid || n.Mtime != mtime || n.Ctime != mtime || n.Btime != mtime || uint64(n.Nlink) != uint64(st.Nlink) {
		t.Errorf("%q: %+v, want %+v", path, n, st)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		names, err := os.ReadDir(path)
		must(t, err)
		var kids []image.Dirent
		must(t, files.ReadDir(ino, 0, func(d image.Dirent) bool { kids = append(kids, d); return true }))
		if len(kids) != len(names) {
			t.Fatalf("%q: %d entries, want %d", path, len(kids), len(names))
		}
		for i, k := range kids {
			if k.Name != names[i].Name() {
				t.Fatalf("%q: %q, want %q", path, k.Name, names[i].Name())
			}
			compare(t, files, k.Ino, path+"/"+k.Name, seen)
		}
	case unix.S_IFCHR, unix.S_IFBLK:
		maj, min := unix.Major(st.Rdev), unix.Minor(st.Rdev)
		if want := min&0xff | maj<<8 | min&^0xff<<12; n.Rdev != want {
			t.Errorf("%q: device %x, want %x", path, n.Rdev, want)
		}
	case unix.S_IFLNK:
		want, err := os.Readlink(path)
		must(t, err)
		r, err := files.OpenFile(n)
		must(t, err)
		got, err := content.ReadAll(r, 1<<20)
		if err != nil || string(got) != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
		r.Close()
	case unix.S_IFREG:
		if n.Size != st.Size {
			t.Errorf("%q: %d bytes, want %d", path, n.Size, st.Size)
		}
		if st.Size > 1<<30 {
			return // holes are compared by themselves
		}
		want, err := os.ReadFile(path)
		must(t, err)
		r, err := files.OpenFile(n)
		must(t, err)
		got, err := content.ReadAll(r, 1<<30)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%q: contents differ (%v)", path, err)
		}
		r.Close()
	}
	for _, x := range n.Xattrs {
		buf := make([]byte, 1024)
		k, err := unix.Lgetxattr(path, x.Name, buf)
		if err != nil || !bytes.Equal(buf[:k], x.Value) {
			t.Errorf("%q: %s = %q, want %q (%v)", path, x.Name, x.Value, buf[:k], err)
		}
	}
	k, _ := unix.Llistxattr(path, nil)
	list := make([]byte, k)
	if k > 0 {
		unix.Llistxattr(path, list)
	}
	if want := bytes.Count(list, []byte{0}); len(n.Xattrs) != want {
		t.Errorf("%q: xattrs %v, want %q", path, n.Xattrs, list)
	}
}

func TestEverythingIsKept(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("owners and devices need root")
	}
	dir := zoo(t)
	s := newStore(t)
	res, err := Import(context.Background(), s, Request{Dir: dir})
	must(t, err)
	files, err := s.Files(res.ID)
	must(t, err)
	compare(t, files, image.Root, dir, map[uint64]uint64{})
	// The holes of 3 GiB are neither read nor stored.
	d, err := files.Lookup(image.Root, "sparse")
	must(t, err)
	n, err := files.Node(d.Ino)
	must(t, err)
	r, err := files.OpenFile(n)
	must(t, err)
	defer r.Close()
	buf := make([]byte, 10)
	must(t, content.ReadFull(r, buf, 1<<30+2))
	if string(buf) != "\x00\x00\x00data\x00\x00\x00" {
		t.Errorf("%q", buf)
	}
	out, err := exec.Command("du", "-sk", s.Dir()).Output()
	must(t, err)
	var kib int
	fmt.Sscan(string(out), &kib)
	if kib > 64<<10 {
		t.Errorf("the store takes %d KiB", kib)
	}
	if res.Files != 13 {
		t.Errorf("%d files", res.Files)
	}
}

// L3's idea for directories: equal trees, equal ids, wherever they are and whatever their inode numbers.
func TestL3_EqualTreesEqualIDs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("owners and devices need root")
	}
	dir := zoo(t)
	twin := filepath.Join(t.TempDir(), "twin")
	out, err := exec.Command("cp", "-a", "--sparse=always", dir, twin).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a, err := Import(context.Background(), newStore(t), Request{Dir: dir})
	must(t, err)
	b, err := Import(context.Background(), newStore(t), Request{Dir: twin})
	must(t, err)
	if a.ID != b.ID {
		t.Errorf("%s and %s", a.ID, b.ID)
	}
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(twin, link))
	c, err := Import(context.Background(), newStore(t), Request{Dir: link})
	must(t, err)
	if a.ID != c.ID {
		t.Errorf("through a symlink: %s", c.ID)
	}
}

func TestExclude(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/x.log", "a/y.txt", "b/x.log", "node_modules/m", ".git/config"} {
		must(t, os.MkdirAll(filepath.Dir(dir+"/"+name), 0o755))
		must(t, os.WriteFile(dir+"/"+name, []byte("12345"), 0o644))
	}
	s := newStore(t)
	res, err := Import(context.Background(), s, Request{Dir: dir, Exclude: []string{"*.log", "/node_modules", "nothing"}})
	must(t, err)
	if res.Files != 1 || res.Bytes != 5 { // .git is not counted
		t.Errorf("%d files of %d bytes", res.Files, res.Bytes)
	}
	if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], `"nothing"`) {
		t.Errorf("%q", res.Warnings)
	}
	var bad *RequestError
	for _, p := range []string{"[", "!a", ""} {
		if _, err := Import(context.Background(), s, Request{Dir: dir, Exclude: []string{p}}); !errors.As(err, &bad) {
			t.Errorf("%q: %v", p, err)
		}
	}
}

// Paths longer than PATH_MAX, by relative steps.
func TestDeepTrees(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	name := strings.Repeat("d", 100)
	const depth = 60
	for range depth {
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	t.Cleanup(func() { exec.Command("rm", "-rf", dir).Run() })
	s := newStore(t)
	res, err := Import(context.Background(), s, Request{Dir: dir})
	must(t, err)
	files, err := s.Files(res.ID)
	must(t, err)
	ino := image.Root
	for range depth {
		d, err := files.Lookup(ino, name)
		must(t, err)
		ino = d.Ino
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/f", []byte("x"), 0o644))
	s, err := snapshot.Open(dir+"/sub/store", snapshot.Options{Create: true})
	must(t, err)
	defer s.Close()
	var holds *HoldsError
	if _, err := Import(context.Background(), s, Request{Dir: dir}); !errors.As(err, &holds) || !strings.Contains(err.Error(), "store") {
		t.Errorf("the store inside: %v", err)
	}
	for _, inside := range []string{dir + "/sub/store", dir + "/sub/store/segments"} {
		os.MkdirAll(inside, 0o700)
		if _, err := Import(context.Background(), s, Request{Dir: inside}); !errors.As(err, &holds) {
			t.Errorf("%s: %v", inside, err)
		}
	}
	if _, err := Import(context.Background(), s, Request{Dir: dir + "/absent"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if _, err := Import(context.Background(), s, Request{Dir: dir + "/f"}); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file: %v", err)
	}
	if os.Getuid() == 0 {
		must(t, os.Mkdir(dir+"/proc", 0o755))
		if err := unix.Mount("proc", dir+"/proc", "proc", 0, ""); err == nil {
			_, err := Import(context.Background(), s, Request{Dir: dir, Exclude: []string{"/sub"}})
			must(t, unix.Unmount(dir+"/proc", unix.MNT_DETACH))
			if !errors.As(err, &holds) || !strings.Contains(err.Error(), "proc") {
				t.Errorf("proc: %v", err)
			}
		}
		must(t, os.Remove(dir+"/proc"))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Import(ctx, s, Request{Dir: dir, Exclude: []string{"/sub"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if list, err := s.List(); err != nil || len(list) > 0 {
		t.Errorf("left behind: %v %v", list, err)
	}
	if _, err := Import(context.Background(), s, Request{Dir: dir, Exclude: []string{"/sub"}}); err != nil {
		t.Errorf("with the store excluded: %v", err)
	}
}
