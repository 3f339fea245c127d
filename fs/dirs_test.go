package fs_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tine/snapshot/image/imagetest"
)

type dirent struct {
	name string
	ino  uint64
	off  int64
	typ  uint8
}

// readDirents reads what getdents64 gives from the descriptor's position on.
func readDirents(t *testing.T, fd int) []dirent {
	t.Helper()
	var list []dirent
	buf := make([]byte, 4096)
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil {
			t.Fatalf("getdents: %v", err)
		}
		if n == 0 {
			return list
		}
		list = append(list, parseDirents(buf[:n])...)
	}
}

func parseDirents(b []byte) []dirent {
	var list []dirent
	for len(b) > 0 {
		size := binary.NativeEndian.Uint16(b[16:])
		name, _, _ := bytes.Cut(b[19:size], []byte{0})
		list = append(list, dirent{
			name: string(name), ino: binary.NativeEndian.Uint64(b),
			off: int64(binary.NativeEndian.Uint64(b[8:])), typ: b[18],
		})
		b = b[size:]
	}
	return list
}

// readNames lists a directory, sorted, without the dots.
func readNames(t *testing.T, dir string) []string {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var names []string
	for _, e := range readDirents(t, fd) {
		if e.name != "." && e.name != ".." {
			names = append(names, e.name)
		}
	}
	slices.Sort(names)
	return names
}

// CASES 47: seekdir resumes after the entry whose telldir it was, also when entries came and went meanwhile.
func TestCase47_Telldir(t *testing.T) {
	var entries []imagetest.Entry
	for i := range 300 {
		entries = append(entries, imagetest.File(fmt.Sprintf("d/base%03d", i), "", 0644))
	}
	dir, _, _ := workspace(t, entries...)
	for i := range 100 {
		write(t, fmt.Sprintf("%s/d/new%03d", dir, i), "")
	}
	fd := openFile(t, dir+"/d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	all := readDirents(t, fd)
	if len(all) != 402 || all[0].name != "." || all[1].name != ".." {
		t.Fatalf("%d entries, first %v", len(all), all[:2])
	}
	for _, i := range []int{0, 1, 2, 5, 150, 301, 302, 350, 401} {
		if _, err := unix.Seek(fd, all[i].off, unix.SEEK_SET); err != nil {
			t.Fatal(err)
		}
		if rest := readDirents(t, fd); !slices.Equal(rest, all[i+1:]) {
			t.Errorf("after entry %d (%s): %d entries, want %d", i, all[i].name, len(rest), len(all)-i-1)
		}
	}
	// Positions of what stays are the same after a removal and an addition, and for another descriptor.
	os.Remove(dir + "/d/base002")
	os.Remove(dir + "/d/new000")
	write(t, dir+"/d/zz", "")
	fd2 := openFile(t, dir+"/d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	readDirents(t, fd2) // the kernel validates its cached listing at the beginning only
	if _, err := unix.Seek(fd2, all[151].off, unix.SEEK_SET); err != nil {
		t.Fatal(err)
	}
	rest := readDirents(t, fd2)
	if len(rest) != 250 || rest[0].name != all[152].name || rest[len(rest)-1].name != "zz" {
		t.Errorf("%d entries, first %s, last %s", len(rest), rest[0].name, rest[len(rest)-1].name)
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		t.Fatal(err)
	}
	if again := readDirents(t, fd); len(again) != 401 {
		t.Errorf("%d entries after rewinddir", len(again))
	}
}

// Each name that stays is listed exactly once while others come and go.
func TestListingWhileChanging(t *testing.T) {
	var entries []imagetest.Entry
	for i := range 500 {
		entries = append(entries, imagetest.File(fmt.Sprintf("d/keep%03d", i), "", 0644))
	}
	dir, _, _ := workspace(t, entries...)
	fd := openFile(t, dir+"/d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	seen := make(map[string]int)
	buf := make([]byte, 1024)
	for i := 0; ; i++ {
		n, err := unix.Getdents(fd, buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		for _, e := range parseDirents(buf[:n]) {
			seen[e.name]++
		}
		name := fmt.Sprintf("%s/d/tmp%d", dir, i)
		write(t, name, "")
		if i%2 == 0 {
			os.Remove(name)
		}
	}
	for i := range 500 {
		if name := fmt.Sprintf("keep%03d", i); seen[name] != 1 {
			t.Errorf("%s listed %d times", name, seen[name])
		}
	}
}

// CASES 48: a removed base name is gone from listings and can be made again, as anything.
func TestCase48_RemovedName(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.File("f", "old", 0644))
	p := dir + "/f"
	if err := os.Remove(p); err != nil {
		t.Fatal(err)
	}
	if names := readNames(t, dir); len(names) != 0 {
		t.Errorf("still listed: %v", names)
	}
	if err := os.Mkdir(p, 0755); err != nil {
		t.Fatal(err)
	}
	if names := readNames(t, p); len(names) != 0 {
		t.Errorf("%v", names)
	}
	if err := os.RemoveAll(p); err != nil {
		t.Fatal(err)
	}
	write(t, p, "new")
	wantContent(t, p, "new")
}

// CASES 49: names of 252 to 255 bytes, and such that other file systems keep for themselves.
func TestCase49_LongAndOddNames(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.File(strings.Repeat("b", 255), "base", 0644), imagetest.File(".wh.base", "w", 0644))
	names := []string{".wh.x", ".wh..wh..opq", "\xff\xfe", "Case", "case", "e\u0301", "\u00e9", "a\nb", " ", "-"}
	for n := 252; n <= 255; n++ {
		names = append(names, strings.Repeat("a", n))
	}
	for _, n := range names {
		write(t, dir+"/"+n, n)
	}
	for _, n := range names {
		wantContent(t, dir+"/"+n, n)
	}
	if got := readNames(t, dir); len(got) != len(names)+2 {
		t.Errorf("%d names listed, want %d", len(got), len(names)+2)
	}
	wantContent(t, dir+"/"+strings.Repeat("b", 255), "base")
	for _, n := range append(names, strings.Repeat("b", 255), ".wh.base") {
		if err := os.Remove(dir + "/" + n); err != nil {
			t.Errorf("%q: %v", n, err)
		}
	}
	if err := unix.Mkdir(dir+"/"+strings.Repeat("a", 256), 0755); err != unix.ENAMETOOLONG {
		t.Errorf("256 bytes: %v", err)
	}
	if _, err := os.Lstat(dir + "/" + strings.Repeat("a", 256)); err == nil || os.IsNotExist(err) {
		t.Errorf("lookup of 256 bytes: %v", err)
	}
}

// CASES 12, 15: directories of the base, full ones too, can be renamed.
func TestCase12_RenameDirectories(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.File("src/a/b/c", "deep", 0644), imagetest.Dir("empty", 0755))
	if err := os.Rename(dir+"/src", dir+"/src2"); err != nil {
		t.Fatal(err)
	}
	wantContent(t, dir+"/src2/a/b/c", "deep")
	if err := unix.Rename(dir+"/src2/a", dir+"/empty"); err != nil {
		t.Fatal(err)
	}
	wantContent(t, dir+"/empty/b/c", "deep")
	if err := unix.Rename(dir+"/empty", dir+"/empty/b/x"); err != unix.EINVAL {
		t.Errorf("into itself: %v", err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, dir+"/empty", unix.AT_FDCWD, dir+"/src2", unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	wantContent(t, dir+"/src2/b/c", "deep")
	if err := unix.Renameat2(unix.AT_FDCWD, dir+"/empty", unix.AT_FDCWD, dir+"/src2", unix.RENAME_NOREPLACE); err != unix.EEXIST {
		t.Errorf("NOREPLACE: %v", err)
	}
	if err := unix.Rename(dir+"/empty", dir+"/src2"); err != unix.ENOTEMPTY {
		t.Errorf("over a full directory: %v", err)
	}
}

// getcwd follows a rename of an ancestor, and steps go deeper than PATH_MAX.
func TestDeepPathsAndGetcwd(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.Dir("top", 0755))
	fd, err := unix.Open(dir+"/top", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	step := strings.Repeat("d", 200)
	const depth = 30 // 6,000 bytes
	for range depth {
		if err := unix.Mkdirat(fd, step, 0755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, step, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		fd = next
	}
	f, err := unix.Openat(fd, "bottom", unix.O_CREAT|unix.O_WRONLY, 0644)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(f)
	unix.Close(fd)
	mid := openFile(t, dir+"/top/"+step+"/"+step, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err := os.Rename(dir+"/top", dir+"/renamed"); err != nil {
		t.Fatal(err)
	}
	cwd, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", mid))
	if err != nil || cwd != dir+"/renamed/"+step+"/"+step {
		t.Errorf("%q, %v", cwd, err)
	}
	if err := os.RemoveAll(dir + "/renamed"); err != nil {
		t.Errorf("removing a tree deeper than PATH_MAX: %v", err)
	}
}
