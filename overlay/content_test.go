package overlay

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tine/snapshot/image"
)

func (e *env) seek(ino uint64, off int64, whence int, want int64) {
	e.t.Helper()
	got, err := e.f.Seek(ino, off, whence)
	if want < 0 {
		e.wantErr(err, unix.ENXIO)
		return
	}
	e.must(err)
	if got != want {
		e.t.Fatalf("seek(%d, %d) = %d, want %d", off, whence, got, want)
	}
}

func TestSeekFindsDataAndHoles(t *testing.T) {
	e := newEnv(t, sampleTree())
	ino := e.put(1, "sparse", "")
	_, err := e.f.Setattr(root, ino, SetAttr{Valid: SetSize, Size: 1 << 20})
	e.must(err)
	e.seek(ino, 0, unix.SEEK_DATA, -1)
	e.seek(ino, 5, unix.SEEK_HOLE, 5)
	_, err = e.f.Write(root, ino, []byte("x"), 100_000, false)
	e.must(err)
	e.seek(ino, 0, unix.SEEK_DATA, 98304)
	e.seek(ino, 98304, unix.SEEK_HOLE, 102400)
	e.seek(ino, 100_500, unix.SEEK_DATA, 100_500)
	e.seek(ino, 102400, unix.SEEK_DATA, -1)
	e.seek(ino, 1<<20, unix.SEEK_HOLE, -1)
	big := e.ino("big")
	size := int64(20_000 * len("base content "))
	e.seek(big, 0, unix.SEEK_DATA, 0)
	e.seek(big, 0, unix.SEEK_HOLE, size)
	e.must(e.f.Fallocate(root, big, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 8192, 8192))
	e.seek(big, 0, unix.SEEK_HOLE, 8192)
	e.seek(big, 9000, unix.SEEK_DATA, 16384)
	e.must(e.f.Fallocate(root, ino, 0, 8192, 4096))
	e.seek(ino, 0, unix.SEEK_DATA, 8192)
	e.seek(ino, 8192, unix.SEEK_HOLE, 12288)
	// A copy of a hole is no hole.
	c := e.put(1, "copy", "")
	_, err = e.f.CopyRange(root, ino, 20_000, c, 0, 20_000)
	e.must(err)
	e.seek(c, 0, unix.SEEK_HOLE, 20_000)
}

func (e *env) blocks(ino uint64) int64 {
	e.t.Helper()
	a, err := e.f.Getattr(ino)
	e.must(err)
	return a.Blocks
}

func TestBlocksCountWhatTakesSpace(t *testing.T) {
	e := newEnv(t, sampleTree())
	ino := e.put(1, "f", "")
	if b := e.blocks(ino); b != 0 {
		t.Fatalf("empty: %d", b)
	}
	_, err := e.f.Setattr(root, ino, SetAttr{Valid: SetSize, Size: 1 << 20})
	e.must(err)
	if b := e.blocks(ino); b != 0 {
		t.Fatalf("hole: %d", b)
	}
	e.must(e.f.Fallocate(root, ino, unix.FALLOC_FL_KEEP_SIZE, 0, 2<<20))
	if b := e.blocks(ino); b != 4096 {
		t.Fatalf("reserved: %d", b)
	}
	e.must(e.f.Fallocate(root, ino, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20))
	if b := e.blocks(ino); b != 2048 {
		t.Fatalf("punched: %d", b)
	}
	_, err = e.f.Setattr(root, ino, SetAttr{Valid: SetSize, Size: 10})
	e.must(err)
	if b := e.blocks(ino); b != 0 {
		t.Fatalf("cut: %d", b)
	}
	big := e.ino("big")
	was := e.blocks(big)
	_, err = e.f.Write(root, big, make([]byte, 100_000), 1000, false)
	e.must(err)
	if b := e.blocks(big); b != was {
		t.Fatalf("overwritten: %d, was %d", b, was)
	}
}

// TestSmallWritesStayBounded: byte-wise writing costs memory and store in proportion to the bytes (CASES 29).
func TestSmallWritesStayBounded(t *testing.T) {
	e := newEnv(t, sampleTree())
	ino := e.put(1, "log", "")
	for i := range 20_000 {
		_, err := e.f.Write(root, ino, []byte("line\n"), int64(i)*5, false)
		e.must(err)
	}
	n, _ := e.f.w.s.nodes.Get(ino)
	if c := n.ext.count(); c > 200 {
		t.Fatalf("%d extents for 100 kB of small appends", c)
	}
	if got := e.read(ino); got != strings.Repeat("line\n", 20_000) {
		t.Fatal("wrong bytes")
	}
	big := e.ino("big")
	for i := range 20_000 {
		_, err := e.f.Write(root, big, []byte("!"), int64(i*7919%260_000), false)
		e.must(err)
	}
	n, _ = e.f.w.s.nodes.Get(big)
	if c := n.ext.count(); c > 20_000 {
		t.Fatalf("%d extents", c)
	}
	want := e.dump()
	e.reopen()
	if e.dump() != want {
		t.Fatal("differs after reopening")
	}
}

// TestDeadSpaceIsUsedAgain overwrites a file many times; the store must not grow with it.
func TestDeadSpaceIsUsedAgain(t *testing.T) {
	e := newEnv(t, sampleTree())
	ino := e.put(1, "db", "")
	data := make([]byte, 1<<20)
	for i := range 60 {
		data[0] = byte(i)
		_, err := e.f.Write(root, ino, data, 0, false)
		e.must(err)
		e.must(e.f.Fsync(ino, false))
	}
	if st := e.f.Stats(); st.Data > 4<<20 {
		t.Fatalf("data file of %d bytes for 1 MiB", st.Data)
	}
	// A view keeps what it shows.
	v, err := e.f.View()
	e.must(err)
	want := dump(t, v)
	for i := range 10 {
		data[0] = byte(100 + i)
		_, err := e.f.Write(root, ino, data, 0, false)
		e.must(err)
		e.must(e.f.Fsync(ino, false))
	}
	if dump(t, v) != want {
		t.Fatal("a view's data was overwritten")
	}
	e.must(v.Close())
	e.reopen()
	for i := range 10 {
		data[0] = byte(200 + i)
		_, err := e.f.Write(root, ino, data, 0, false)
		e.must(err)
		e.must(e.f.Fsync(ino, false))
	}
	if st := e.f.Stats(); st.Data > 16<<20 {
		t.Fatalf("data file of %d bytes", st.Data)
	}
}

// TestNothingIsCopiedUp: one byte changed in a large base file reads one content and stores one small record.
func TestNothingIsCopiedUp(t *testing.T) {
	base := newMemTree()
	base.add("large", strings.Repeat("0123456789abcdef", 1<<20))
	e := newEnv(t, base)
	ino := e.ino("large")
	_, err := e.f.Write(root, ino, []byte("X"), 5_000_000, false)
	e.must(err)
	if st := e.f.Stats(); st.Journal+st.Data > 2000 || base.opens != 0 {
		t.Fatalf("%+v, %d contents opened", st, base.opens)
	}
	_, err = e.f.CopyRange(root, ino, 0, e.put(1, "copy", ""), 0, 16<<20)
	e.must(err)
	if st := e.f.Stats(); st.Journal+st.Data > 4000 || base.opens != 0 {
		t.Fatalf("copy: %+v, %d contents opened", st, base.opens)
	}
	if e.read(e.ino("copy")) != e.read(ino) {
		t.Fatal("copy differs")
	}
}

func TestO5_UnreadableContentIsEIO(t *testing.T) {
	base := sampleTree()
	e := newEnv(t, base)
	n := base.nodes[e.ino("a")]
	delete(base.bytes, n.Content)
	_, err := e.f.Read(n.Ino, make([]byte, 10), 0)
	e.wantErr(err, unix.EIO)
	base.bytes[base.nodes[e.ino("dir/b")].Content] = []byte("short")
	_, err = e.f.Read(e.ino("dir/b"), make([]byte, 10_000), 0)
	e.wantErr(err, unix.EIO)
	delete(base.bytes, base.nodes[e.ino("link")].Content)
	_, err = e.f.Readlink(e.ino("link"))
	e.wantErr(err, unix.EIO)
}

func TestTmpfileIsLinkableAndUnlinkedIsNot(t *testing.T) {
	e := newEnv(t, sampleTree())
	a, err := e.f.Tmpfile(root, 1, 0600)
	e.must(err)
	if a.Nlink != 0 {
		t.Fatalf("nlink %d", a.Nlink)
	}
	_, err = e.f.Write(root, a.Ino, []byte("tmp"), 0, false)
	e.must(err)
	_, err = e.f.Link(root, a.Ino, 1, "named")
	e.must(err)
	if e.read(e.ino("named")) != "tmp" {
		t.Fatal("wrong bytes")
	}
	e.must(e.f.Unlink(root, 1, "named"))
	_, err = e.f.Link(root, a.Ino, 1, "again")
	e.wantErr(err, unix.ENOENT)
	e.f.Forget(a.Ino)
	e.must(e.f.Fsync(1, false))
	_, err = e.f.Getattr(a.Ino)
	e.wantErr(err, unix.ENOENT)
	// A removed directory takes no names.
	d := e.ino("emptydir")
	e.must(e.f.Rmdir(root, 1, "emptydir"))
	_, err = e.f.Create(root, d, "x", 0644, true)
	e.wantErr(err, unix.ENOENT)
	e.check()
}

func TestLimitsGiveEDQUOT(t *testing.T) {
	e := newEnv(t, sampleTree())
	e.f.SetLimits(Limits{Bytes: 100_000, Inodes: 3})
	ino := e.put(1, "a1", strings.Repeat("x", 60_000))
	_, err := e.f.Write(root, ino, make([]byte, 50_000), 60_000, false)
	e.wantErr(err, unix.EDQUOT)
	_, err = e.f.Write(root, ino, make([]byte, 10_000), 95_000, false)
	e.must(err)
	_, err = e.f.Write(root, ino, make([]byte, 60_000), 0, false) // no growth
	e.must(err)
	e.wantErr(e.f.Fallocate(root, ino, 0, 0, 200_000), unix.EDQUOT)
	_, err = e.f.CopyRange(root, e.ino("big"), 0, e.put(1, "a2", ""), 0, 200_000)
	e.wantErr(err, unix.EDQUOT)
	e.put(1, "a3", "")
	_, err = e.f.Mkdir(root, 1, "a4", 0755)
	e.wantErr(err, unix.EDQUOT)
	st, err := e.f.Statfs()
	e.must(err)
	if st.Blocks != 100_000/4096 || st.Bfree > 10 || st.Ffree != 0 {
		t.Fatalf("%+v", st)
	}
	e.must(e.f.Unlink(root, 1, "a1"))
	e.f.Forget(ino)
	e.must(e.f.Fsync(1, false))
	e.put(1, "a5", strings.Repeat("x", 90_000))
}

func TestTimesAreExt4s(t *testing.T) {
	e := newEnv(t, sampleTree())
	ino := e.put(1, "f", "data")
	get := func(ino uint64) Attr {
		a, err := e.f.Getattr(ino)
		e.must(err)
		return a
	}
	a := get(ino)
	if a.Atime != a.Mtime || a.Btime.Sec > a.Mtime.Sec {
		t.Fatalf("%+v", a)
	}
	_, err := e.f.Setattr(root, ino, SetAttr{Valid: SetMode, Mode: 0600})
	e.must(err)
	if b := get(ino); b.Mtime != a.Mtime || b.Ctime == a.Ctime {
		t.Fatal("chmod")
	}
	set := image.Time{Sec: -5, Nsec: 7}
	_, err = e.f.Setattr(root, ino, SetAttr{Valid: SetAtime, Atime: set})
	e.must(err)
	if b := get(ino); b.Atime != set || b.Mtime != a.Mtime {
		t.Fatal("atime")
	}
	dir := get(1)
	_, err = e.f.Write(root, ino, []byte("x"), 0, false)
	e.must(err)
	b := get(ino)
	if b.Atime != set || b.Mtime == a.Mtime || b.Ctime != b.Mtime || get(1) != dir {
		t.Fatal("write")
	}
	_, err = e.f.Setattr(root, ino, SetAttr{Valid: SetSize, Size: b.Size})
	e.must(err)
	if c := get(ino); c.Mtime == b.Mtime {
		t.Fatal("truncate to the same size")
	}
	e.must(e.f.Rename(root, 1, "f", e.ino("dir"), "g", 0))
	if c := get(1); c.Mtime == dir.Mtime || c.Ctime != c.Mtime {
		t.Fatal("rename")
	}
	want := get(ino)
	e.reopen()
	if get(ino) != want {
		t.Fatal("reopening")
	}
}
