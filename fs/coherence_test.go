package fs_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tine/fs"
	"tine/overlay"
	"tine/snapshot/image/imagetest"
)

// CASES 1: an open reader of a base file sees what is appended to it.
func TestCase1_TailSeesAppends(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.File("f", "base\n", 0644))
	r := openFile(t, dir+"/f", unix.O_RDONLY, 0)
	buf := make([]byte, 100)
	if n, err := unix.Read(r, buf); err != nil || string(buf[:n]) != "base\n" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	w := openFile(t, dir+"/f", unix.O_WRONLY|unix.O_APPEND, 0)
	if _, err := unix.Write(w, []byte("x\n")); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(r, buf); err != nil || string(buf[:n]) != "x\n" {
		t.Fatalf("after the append: %q, %v", buf[:n], err)
	}
}

// CASES 2: a descriptor opened for reading before the first write reads the new bytes.
func TestCase2_ReaderSeesFirstWrite(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.File("f", "old", 0644))
	r := openFile(t, dir+"/f", unix.O_RDONLY, 0)
	w := openFile(t, dir+"/f", unix.O_RDWR, 0)
	if _, err := unix.Pwrite(w, []byte("X"), 0); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if n, err := unix.Pread(r, buf, 0); err != nil || string(buf[:n]) != "Xld" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
}

// CASES 4: what was read before it was overwritten is not old bytes cut to the new size.
func TestCase4_OverwriteAfterRead(t *testing.T) {
	long := strings.Repeat("b", 100_000)
	dir, _, _ := workspace(t, imagetest.File("a", strings.Repeat("a", 5000), 0644), imagetest.File("b", long, 0644))
	wantContent(t, dir+"/a", strings.Repeat("a", 5000))
	for _, data := range []string{long, "short", strings.Repeat("c", 4096), ""} {
		write(t, dir+"/a", data)
		wantContent(t, dir+"/a", data)
	}
}

// CASES 5, 6, 7, 9: hard links of base files.
func TestCase5_HardLinks(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.File("f", "one\n", 0644))
	before := stat(t, dir+"/f")
	if err := os.Link(dir+"/f", dir+"/g"); err != nil {
		t.Fatal(err)
	}
	f, g := stat(t, dir+"/f"), stat(t, dir+"/g")
	if f.Ino != before.Ino || g.Ino != before.Ino || f.Dev != g.Dev {
		t.Errorf("inodes %d, %d and %d", before.Ino, f.Ino, g.Ino)
	}
	if f.Nlink != 2 || g.Nlink != 2 {
		t.Errorf("%d and %d links, want 2", f.Nlink, g.Nlink)
	}
	fd := openFile(t, dir+"/f", unix.O_WRONLY|unix.O_APPEND, 0)
	if _, err := unix.Write(fd, []byte("two\n")); err != nil {
		t.Fatal(err)
	}
	wantContent(t, dir+"/g", "one\ntwo\n")
	if err := os.Remove(dir + "/f"); err != nil {
		t.Fatal(err)
	}
	if g := stat(t, dir+"/g"); g.Nlink != 1 {
		t.Errorf("%d links after the removal", g.Nlink)
	}
}

// CASES 11: d_ino is st_ino, and both are the same after a remount.
func TestCase11_InodesAreStable(t *testing.T) {
	f := newFork(t, imagetest.File("d/a", "1", 0644), imagetest.File("d/b", "2", 0644), imagetest.Symlink("d/l", "a"))
	s := newServer(t)
	dir, w := mount(t, s, f.fork, fs.MountOptions{})
	write(t, dir+"/d/new", "x")
	inodes := func(dir string) map[string]uint64 {
		fd := openFile(t, dir+"/d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		m := make(map[string]uint64)
		for _, e := range readDirents(t, fd) {
			m[e.name] = e.ino
			if e.name == ".." {
				if st := stat(t, dir); st.Ino != e.ino {
					t.Errorf("..: d_ino %d, st_ino %d", e.ino, st.Ino)
				}
			} else if st := stat(t, dir+"/d/"+e.name); st.Ino != e.ino {
				t.Errorf("%s: d_ino %d, st_ino %d", e.name, e.ino, st.Ino)
			}
		}
		return m
	}
	first := inodes(dir)
	if len(first) != 6 {
		t.Errorf("%d entries: %v", len(first), first)
	}
	w.Close()
	dir, _ = mount(t, s, f.fork, fs.MountOptions{})
	second := inodes(dir)
	for name, ino := range first {
		if second[name] != ino {
			t.Errorf("%s: inode %d, after the remount %d", name, ino, second[name])
		}
	}
}

// Stores through a mapping are seen by read(2) at once, by the engine after msync, and by the next mount.
func TestO1_MappedStores(t *testing.T) {
	f := newFork(t, imagetest.File("m", strings.Repeat("a", 10_000), 0644))
	s := newServer(t)
	dir, w := mount(t, s, f.fork, fs.MountOptions{})
	inChild(t, "map-and-sync", dir+"/m")
	buf := make([]byte, 6)
	if n, err := f.fork.Read(stat(t, dir+"/m").Ino, buf, 5000); n != 6 || err != nil || string(buf) != "mapped" {
		t.Errorf("the engine has %q, %v", buf, err)
	}
	inChild(t, "map-and-close", dir+"/m")
	w.Close()
	dir, _ = mount(t, s, f.fork, fs.MountOptions{})
	want := []byte(strings.Repeat("a", 10_000))
	copy(want[5000:], "mapped")
	copy(want[6000:], "written")
	copy(want[7000:], "at close")
	wantContent(t, dir+"/m", string(want))
}

// mapFile maps all of an open file shared.
func mapFile(path string) (fd int, m []byte, err error) {
	if fd, err = unix.Open(path, unix.O_RDWR, 0); err != nil {
		return -1, nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		return -1, nil, err
	}
	m, err = unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return fd, m, err
}

func init() {
	children["map-and-sync"] = func(args []string) error {
		fd, m, err := mapFile(args[0])
		if err != nil {
			return err
		}
		copy(m[5000:], "mapped")
		buf := make([]byte, 6)
		if _, err := unix.Pread(fd, buf, 5000); err != nil || string(buf) != "mapped" {
			return fmt.Errorf("read of a mapped store: %q, %v", buf, err)
		}
		if _, err := unix.Pwrite(fd, []byte("written"), 6000); err != nil {
			return err
		}
		if string(m[6000:6007]) != "written" {
			return fmt.Errorf("the mapping shows %q", m[6000:6007])
		}
		return unix.Msync(m, unix.MS_SYNC)
	}
	children["map-and-close"] = func(args []string) error {
		fd, m, err := mapFile(args[0])
		if err != nil {
			return err
		}
		copy(m[7000:], "at close")
		unix.Munmap(m)
		return unix.Close(fd)
	}
}

// What changes behind the kernel's back is invalidated: names that were negative, names that were there, contents,
// attributes and listings.
func TestInvalidation(t *testing.T) {
	dir, w, f := workspace(t, imagetest.File("d/a", "old", 0644), imagetest.File("d/gone", "x", 0644))
	if _, err := os.Stat(dir + "/d/new"); !os.IsNotExist(err) {
		t.Fatal(err)
	}
	wantContent(t, dir+"/d/a", "old")
	wantContent(t, dir+"/d/gone", "x")
	if names := readNames(t, dir+"/d"); len(names) != 2 {
		t.Fatalf("%v", names)
	}
	d, a := stat(t, dir+"/d").Ino, stat(t, dir+"/d/a").Ino
	host := overlay.Caller{}
	n, err := f.fork.Create(host, d, "new", 0644, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.fork.Write(host, n.Ino, []byte("by the host"), 0, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.fork.Write(host, a, []byte("newer"), 0, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.fork.Setattr(host, a, overlay.SetAttr{Valid: overlay.SetMode, Mode: 0600}); err != nil {
		t.Fatal(err)
	}
	if err := f.fork.Unlink(host, d, "gone"); err != nil {
		t.Fatal(err)
	}
	f.fork.FlushEvents()
	wantContent(t, dir+"/d/new", "by the host")
	wantContent(t, dir+"/d/a", "newer")
	if st := stat(t, dir+"/d/a"); st.Mode != unix.S_IFREG|0600 || st.Size != 5 {
		t.Errorf("mode %o, size %d", st.Mode, st.Size)
	}
	if _, err := os.Stat(dir + "/d/gone"); !os.IsNotExist(err) {
		t.Errorf("a removed name: %v", err)
	}
	if names := readNames(t, dir+"/d"); strings.Join(names, " ") != "a new" {
		t.Errorf("listing %v", names)
	}
	// Nothing is asked again that didn't change.
	before := w.Conn.Requests()
	wantContent(t, dir+"/d/a", "newer")
	stat(t, dir+"/d/new")
	if after := w.Conn.Requests(); after["LOOKUP"] != before["LOOKUP"] || after["READ"] != before["READ"] {
		t.Errorf("asked again: %v, then %v", before, after)
	}
}

// Entries, attributes, negative entries, listings, symlinks and data are cached without expiry.
func TestWarmAccessAsksNothing(t *testing.T) {
	dir, w, _ := workspace(t, imagetest.File("d/a", "data", 0644), imagetest.Symlink("d/l", "a"), imagetest.Dir("d/sub", 0755))
	pass := func() {
		wantContent(t, dir+"/d/l", "data")
		stat(t, dir+"/d/a")
		if _, err := os.Stat(dir + "/d/none"); !os.IsNotExist(err) {
			t.Error(err)
		}
		readNames(t, dir+"/d")
		if l, err := os.Readlink(dir + "/d/l"); err != nil || l != "a" {
			t.Error(l, err)
		}
	}
	for range 3 { // the second asks for what reading invalidated: atime
		pass()
	}
	before := w.Conn.Requests()
	for range 10 {
		pass()
	}
	for op, n := range w.Conn.Requests() {
		if n != before[op] {
			t.Errorf("%d %s requests by warm accesses", n-before[op], op)
		}
	}
}

// The name that go-fuse keeps for itself is an ordinary one.
func TestGoFuseNameIsOrdinary(t *testing.T) {
	const name = ".go-fuse-epoll-hack"
	dir, _, _ := workspace(t, imagetest.Dir("d", 0755))
	p := dir + "/" + name
	if _, err := os.Lstat(p); !os.IsNotExist(err) {
		t.Fatalf("%v", err)
	}
	write(t, p, "mine")
	wantContent(t, p, "mine")
	if names := readNames(t, dir); strings.Join(names, " ") != name+" d" {
		t.Errorf("%v", names)
	}
	if err := os.Rename(p, dir+"/d/"+name); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+"/d/"+name, p); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(p, dir+"/other"); err != nil {
		t.Fatal(err)
	}
	wantContent(t, dir+"/other", "mine")
	if err := os.Remove(p); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p, 0755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(p, "x"), "y")
	if err := os.RemoveAll(p); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("d", p); err != nil {
		t.Fatal(err)
	}
	if l, err := os.Readlink(p); err != nil || l != "d" {
		t.Errorf("%q, %v", l, err)
	}
}

// CASES 29: many small writes to one large file leave memory and store bounded; here: reading back is right.
func TestCase29_SmallEditsOfLargeFile(t *testing.T) {
	const size = 8 << 20
	dir, _, _ := workspace(t)
	want := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	if err := os.WriteFile(dir+"/big", want, 0644); err != nil {
		t.Fatal(err)
	}
	fd := openFile(t, dir+"/big", unix.O_RDWR, 0)
	for i := range 5000 {
		off := (i * 7919 * 13) % size
		want[off] = byte(i)
		if _, err := unix.Pwrite(fd, want[off:off+1], int64(off)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(dir + "/big")
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("differs, %v", err)
	}
}
