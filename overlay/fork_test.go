package overlay

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestO1_ForkShowsItsBaseUntilChanged(t *testing.T) {
	e := newEnv(t, sampleTree())
	if got := e.read(e.ino("a")); got != "content of a" {
		t.Fatalf("a = %q", got)
	}
	target, err := e.f.Readlink(e.ino("link"))
	e.must(err)
	if target != "dir/b" {
		t.Fatalf("link -> %q", target)
	}
	want := dump(t, treeFiles{e.base})
	if got := e.dump(); got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
	if e.f.Changed() {
		t.Fatal("changed by reading")
	}
}

func TestO3_OperationsSurviveReopening(t *testing.T) {
	e := newEnv(t, sampleTree())
	d, err := e.f.Mkdir(root, 1, "new", 0755)
	e.must(err)
	ino := e.put(d.Ino, "file", "hello")
	_, err = e.f.Symlink(root, d.Ino, "sym", "../a")
	e.must(err)
	_, err = e.f.Link(root, ino, 1, "second")
	e.must(err)
	e.must(e.f.Rename(root, 1, "dir", d.Ino, "moved", 0))
	e.must(e.f.Unlink(root, 1, "a"))
	e.must(e.f.Rmdir(root, 1, "emptydir"))
	_, err = e.f.Write(root, e.ino("new/moved/b"), []byte("XYZ"), 5, false)
	e.must(err)
	_, err = e.f.Write(root, e.ino("big"), []byte(strings.Repeat("data", 100_000)), 1000, false)
	e.must(err)
	e.must(e.f.Setxattr(root, ino, "user.k", []byte("v"), 0))
	_, err = e.f.Setattr(root, e.ino("hard1"), SetAttr{Valid: SetSize | SetMode, Size: 3, Mode: 0600})
	e.must(err)
	e.check()
	want := e.dump()
	e.reopen()
	if got := e.dump(); got != want {
		t.Fatalf("after reopening\n%s\nwant\n%s", got, want)
	}
	e.must(e.f.Fsync(ino, false))
	e.put(1, "later", strings.Repeat("x", 50_000))
	want = e.dump()
	e.reopen()
	if got := e.dump(); got != want {
		t.Fatalf("after reopening twice\n%s\nwant\n%s", got, want)
	}
}

func TestErrnos(t *testing.T) {
	e := newEnv(t, sampleTree())
	f := e.f
	dir, a, b := e.ino("dir"), e.ino("a"), e.ino("dir/b")
	_, err := f.Create(root, 1, "a", 0644, true)
	e.wantErr(err, unix.EEXIST)
	_, err = f.Mkdir(root, 1, "a", 0755)
	e.wantErr(err, unix.EEXIST)
	_, err = f.Create(root, 1, strings.Repeat("n", 256), 0644, false)
	e.wantErr(err, unix.ENAMETOOLONG)
	_, err = f.Mkdir(root, a, "x", 0755)
	e.wantErr(err, unix.ENOTDIR)
	e.wantErr(f.Rmdir(root, 1, "dir"), unix.ENOTEMPTY)
	e.wantErr(f.Rmdir(root, 1, "a"), unix.ENOTDIR)
	e.wantErr(f.Unlink(root, 1, "dir"), unix.EISDIR)
	e.wantErr(f.Unlink(root, 1, "none"), unix.ENOENT)
	_, err = f.Link(root, dir, 1, "d2")
	e.wantErr(err, unix.EPERM)
	e.wantErr(f.Rename(root, 1, "dir", e.ino("dir/sub"), "x", 0), unix.EINVAL)
	e.wantErr(f.Rename(root, 1, "a", 1, "dir", 0), unix.EISDIR)
	e.wantErr(f.Rename(root, 1, "emptydir", 1, "a", 0), unix.ENOTDIR)
	e.wantErr(f.Rename(root, 1, "emptydir", 1, "dir", 0), unix.ENOTEMPTY)
	e.wantErr(f.Rename(root, 1, "a", 1, "empty", unix.RENAME_NOREPLACE), unix.EEXIST)
	e.wantErr(f.Rename(root, 1, "a", 1, "none", unix.RENAME_EXCHANGE), unix.ENOENT)
	e.wantErr(f.Rename(root, 1, "a", 1, "none", unix.RENAME_WHITEOUT), unix.EINVAL)
	_, err = f.Setattr(root, dir, SetAttr{Valid: SetSize})
	e.wantErr(err, unix.EISDIR)
	_, err = f.Write(root, b, []byte("x"), maxSize, false)
	e.wantErr(err, unix.EFBIG)
	_, err = f.Getxattr(a, "user.none")
	e.wantErr(err, unix.ENODATA)
	e.wantErr(f.Setxattr(root, a, "other.x", nil, 0), unix.EOPNOTSUPP)
	e.wantErr(f.Removexattr(root, a, "user.none"), unix.ENODATA)
	if e.f.Changed() {
		t.Fatal("changed by failures")
	}
}

func TestRenameKeepsInodeAndIsTwoEntries(t *testing.T) {
	e := newEnv(t, sampleTree())
	before, c := e.ino("dir"), e.ino("dir/sub/c")
	e.must(e.f.Rename(root, 1, "dir", e.ino("emptydir"), "moved", 0))
	if got := e.ino("emptydir/moved"); got != before {
		t.Fatalf("inode %d became %d", before, got)
	}
	if e.ino("emptydir/moved/sub/c") != c {
		t.Fatal("a file inside moved to another inode")
	}
	if p, _ := e.f.Parent(before); p != e.ino("emptydir") {
		t.Fatalf("parent %d", p)
	}
	if n := e.f.w.s.names.Len(); n != 2 {
		t.Fatalf("%d changed names", n)
	}
	e.must(e.f.Rename(root, 1, "emptydir", 1, "big", unix.RENAME_EXCHANGE))
	if a, _ := e.lookup("big/moved/sub/c"); a.Ino != c {
		t.Fatal("exchange lost the directory")
	}
	e.reopen()
	if a, _ := e.lookup("big/moved/sub/c"); a.Ino != c {
		t.Fatal("exchange lost the directory on reopening")
	}
}

func TestReaddirPositionsAreStable(t *testing.T) {
	e := newEnv(t, sampleTree())
	all := e.names(1)
	for i := range 300 {
		e.put(1, "new"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+strings.Repeat("y", i/26), "")
	}
	var third, last uint64
	i := 0
	e.must(e.f.ReadDir(1, 0, func(d Dirent, _ func() (Attr, bool)) bool {
		if i++; i == 3 {
			third = d.Pos
		}
		last = d.Pos
		return true
	}))
	rest := func() (names []string) {
		e.must(e.f.ReadDir(1, third, func(d Dirent, attr func() (Attr, bool)) bool {
			if a, ok := attr(); !ok || a.Ino != d.Ino {
				t.Fatalf("attributes of %q", d.Name)
			}
			names = append(names, d.Name)
			return true
		}))
		return names
	}
	want := rest()
	if len(want) != len(all)+300-3 {
		t.Fatalf("%d names behind the third", len(want))
	}
	e.must(e.f.Unlink(root, 1, all[0]))
	e.must(e.f.Unlink(root, 1, all[1]))
	e.reopen()
	if got := rest(); !slices.Equal(got, want) {
		t.Fatalf("got %v want %v", got, want)
	}
	// A replaced name keeps its place, a new one comes last.
	e.must(e.f.Rename(root, 1, want[len(want)-1], 1, want[1], 0))
	e.put(1, "zzz", "")
	if got := rest(); got[1] != want[1] || got[len(got)-1] != "zzz" || len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	_ = last
}
