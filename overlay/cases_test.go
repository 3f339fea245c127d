package overlay

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tine/snapshot/content"
)

// Symptoms that others' users reported (CASES.md), at the level of the engine.

// CASES 5, 6, 7, 9.
func TestLinkKeepsTheInodeAndCountsTwo(t *testing.T) {
	e := newEnv(t, sampleTree())
	a := e.ino("a")
	for _, name := range []string{"g", "dir/h"} {
		dir, base := uint64(1), name
		if d, n, ok := strings.Cut(name, "/"); ok {
			dir, base = e.ino(d), n
		}
		l, err := e.f.Link(root, a, dir, base)
		e.must(err)
		if l.Ino != a || e.ino("a") != a || e.ino(name) != a {
			t.Fatalf("%s: inode %d, was %d", name, l.Ino, a)
		}
	}
	at, _ := e.f.Getattr(a)
	if at.Nlink != 3 {
		t.Fatalf("nlink %d", at.Nlink)
	}
	_, err := e.f.Write(root, e.ino("g"), []byte("CONTENT"), 0, false)
	e.must(err)
	if got := e.read(e.ino("dir/h")); got != "CONTENT of a" {
		t.Fatalf("by the other name: %q", got)
	}
}

// CASES 4, 2.
func TestOverwritingALongerFileLeavesNoOldBytes(t *testing.T) {
	e := newEnv(t, sampleTree())
	b := e.ino("dir/b")
	e.read(b)
	_, err := e.f.Setattr(root, b, SetAttr{Valid: SetSize, Size: 0})
	e.must(err)
	_, err = e.f.Write(root, b, []byte("short"), 0, false)
	e.must(err)
	if e.read(b) != "short" {
		t.Fatalf("%q", e.read(b))
	}
	_, err = e.f.Setattr(root, b, SetAttr{Valid: SetSize, Size: 20})
	e.must(err)
	if e.read(b) != "short"+strings.Repeat("\x00", 15) {
		t.Fatalf("grown again: %q", e.read(b))
	}
}

// CASES 11: also after reopening.
func TestListedInodeIsTheStatOne(t *testing.T) {
	e := newEnv(t, sampleTree())
	e.put(1, "n", "x")
	e.must(e.f.Rename(root, 1, "n", 1, "big", 0))
	for range 2 {
		e.must(e.f.ReadDir(1, 0, func(d Dirent, attr func() (Attr, bool)) bool {
			a, ok := attr()
			l, err := e.f.Lookup(1, d.Name)
			if !ok || err != nil || a.Ino != d.Ino || l.Ino != d.Ino || uint8(a.Mode>>12) != d.Type {
				t.Errorf("%+v: attr %+v, lookup %+v %v", d, a, l, err)
			}
			return true
		}))
		e.reopen()
	}
}

// CASES 48.
func TestDeletedNameIsGoneAndCanBeMadeAgain(t *testing.T) {
	e := newEnv(t, sampleTree())
	for i := range 3 {
		e.must(e.f.Unlink(root, 1, "a"))
		if _, err := e.lookup("a"); Errno(err) != unix.ENOENT {
			t.Fatal(err)
		}
		for _, n := range e.names(1) {
			if n == "a" {
				t.Fatal("still listed")
			}
		}
		_, err := e.f.Mkdir(root, 1, "a", 0755)
		e.must(err)
		if len(e.names(e.ino("a"))) != 0 {
			t.Fatal("not empty")
		}
		e.must(e.f.Rmdir(root, 1, "a"))
		if i == 1 {
			e.reopen()
		}
		e.put(1, "a", fmt.Sprint(i))
	}
	e.check()
	// A base directory that is removed and made again is empty.
	e.must(e.f.Unlink(root, e.ino("dir/sub"), "c"))
	e.must(e.f.Rmdir(root, e.ino("dir"), "sub"))
	_, err := e.f.Mkdir(root, e.ino("dir"), "sub", 0700)
	e.must(err)
	if n := e.names(e.ino("dir/sub")); len(n) != 0 {
		t.Fatal(n)
	}
}

// CASES 49.
func TestLongAndWhiteoutLikeNames(t *testing.T) {
	e := newEnv(t, sampleTree())
	for _, n := range []string{strings.Repeat("a", 255), ".wh.a", ".wh..wh..opq", "..x", "\xff\xfe", "ü" + "u\u0308", "with\nnewline"} {
		e.put(1, n, n)
		e.reopen()
		if e.read(e.ino(n)) != n {
			t.Fatalf("%q", n)
		}
		e.must(e.f.Unlink(root, 1, n))
	}
	e.ino("a")
	_, err := e.f.Create(root, 1, "a/b", 0644, true)
	e.wantErr(err, unix.EINVAL)
}

// pattern is a large content that is never in memory.
type pattern int64

func (p pattern) Size() int64  { return int64(p) }
func (p pattern) Close() error { return nil }
func (p pattern) ReadAt(b []byte, off int64) (int, error) {
	n := min(int64(len(b)), int64(p)-off)
	for i := range b[:n] {
		b[i] = byte((off + int64(i)) * 2654435761 >> 13)
	}
	return int(n), nil
}

func (p pattern) Open(content.ID) (content.Reader, error) { return p, nil }

// CASES 43, and one byte changed in a large file costs one small record.
func TestLargeBaseFileIsCopiedWholeWithoutReading(t *testing.T) {
	const size = 5 << 30
	base := newMemTree()
	ino := base.add("large", "x")
	n := base.nodes[ino]
	n.Size, n.Content.Algo = size, content.Tree256
	base.nodes[ino] = n
	e := newEnv(t, base)
	e.close()
	e.cfg.Contents = pattern(size)
	e.open()
	copied := e.put(1, "copy", "")
	for off := int64(0); off < size; {
		k, err := e.f.CopyRange(root, ino, off, copied, off, 1<<31)
		e.must(err)
		off += k
	}
	_, err := e.f.Write(root, copied, []byte("X"), 3<<30, false)
	e.must(err)
	want, got := make([]byte, 1<<20), make([]byte, 1<<20)
	for _, off := range []int64{0, 3<<30 - 100, size - 1<<20} {
		_, err := e.f.Read(ino, want, off)
		e.must(err)
		_, err = e.f.Read(copied, got, off)
		e.must(err)
		if off == 3<<30-100 {
			want[100] = 'X'
		}
		if string(got) != string(want) {
			t.Fatalf("differs at %d", off)
		}
	}
	if st := e.f.Stats(); st.Journal+st.Data > 4096 {
		t.Fatalf("%+v", st)
	}
	a, _ := e.f.Getattr(copied)
	if a.Size != size || a.Blocks != size/512 {
		t.Fatalf("%+v", a)
	}
}

// CASES 44.
func TestUnlinkedOpenFileWorksOn(t *testing.T) {
	e := newEnv(t, sampleTree())
	ino := e.put(1, "f", "before")
	e.must(e.f.Unlink(root, 1, "f"))
	_, err := e.f.Write(root, ino, []byte(strings.Repeat("after", 10_000)), 6, false)
	e.must(err)
	e.must(e.f.Fsync(ino, false))
	a, err := e.f.Getattr(ino)
	e.must(err)
	if a.Nlink != 0 || a.Size != 50_006 || !strings.HasPrefix(e.read(ino), "beforeafter") {
		t.Fatalf("%+v", a)
	}
	e.must(e.f.Setxattr(root, ino, "user.x", []byte("y"), 0))
	v, err := e.f.Rotate(NewLayerID())
	e.must(err)
	for _, d := range e.names(1) {
		if strings.Contains(d, "fuse_hidden") {
			t.Fatal(d)
		}
	}
	if got := dump(t, v); strings.Contains(got, "after") {
		t.Fatal("in the view")
	}
	v.Close()
	e.f.Forget(ino)
	e.must(e.f.Fsync(1, false))
	e.check()
	if st := e.f.Stats(); st.OwnBytes != 0 || st.Orphans != 0 {
		t.Fatalf("%+v", st)
	}
}

// CASES 61: names change and links come and go at once, no inode is lost.
func TestLinkAndRenameLoseNothing(t *testing.T) {
	d := newDriver(newEnv(t, sampleTree()), 61)
	for i := range 1500 {
		d.names()
		if i%300 == 0 {
			d.compare()
		}
	}
	d.compare()
	// rm -r
	var rm func(dir uint64)
	rm = func(dir uint64) {
		for _, n := range d.env.names(dir) {
			a, err := d.f.Lookup(dir, n)
			d.must(err)
			if a.IsDir() {
				rm(a.Ino)
				d.must(d.f.Rmdir(root, dir, n))
			} else {
				d.must(d.f.Unlink(root, dir, n))
			}
		}
	}
	rm(1)
	d.check()
	d.reopen()
	if n := d.env.names(1); len(n) != 0 {
		t.Fatal(n)
	}
}

func BenchmarkReplay100kFiles(b *testing.B) {
	base := sampleTree()
	cfg := Config{Base: base, Contents: base, LayersDir: b.TempDir(), Layers: []LayerID{NewLayerID()}, ForkID: "bench"}
	f, err := Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 100_000 {
		a, err := f.Create(root, 1, fmt.Sprint("file", i), 0644, true)
		if err == nil {
			_, err = f.Write(root, a.Ino, []byte("some data"), 0, false)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	f.Close()
	b.ResetTimer()
	for b.Loop() {
		f, err := Open(cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		f.Close()
		b.StartTimer()
	}
}
