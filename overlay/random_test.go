package overlay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// driver does random operations on a fork and on the model of it.
type driver struct {
	*env
	m     *model
	r     *rand.Rand
	n     int
	log   []string
	ops   ops
	quick bool // no large data
}

// ops are the operations that Fork and Tx have in common.
type ops interface {
	Create(c Caller, dir uint64, name string, mode uint32, excl bool) (Attr, error)
	Mkdir(c Caller, dir uint64, name string, mode uint32) (Attr, error)
	Symlink(c Caller, dir uint64, name, target string) (Attr, error)
	Link(c Caller, ino, dir uint64, name string) (Attr, error)
	Setattr(c Caller, ino uint64, s SetAttr) (Attr, error)
	Unlink(c Caller, dir uint64, name string) error
	Rmdir(c Caller, dir uint64, name string) error
	Rename(c Caller, oldDir uint64, oldName string, newDir uint64, newName string, flags uint32) error
	Setxattr(c Caller, ino uint64, name string, value []byte, flags uint32) error
	Removexattr(c Caller, ino uint64, name string) error
}

func newDriver(e *env, seed uint64) *driver {
	return &driver{env: e, m: newModel(e.base), r: rand.New(rand.NewPCG(seed, 7)), ops: e.f}
}

func (d *driver) note(format string, a ...any) { d.log = append(d.log, fmt.Sprintf(format, a...)) }

// same fails unless err is want.
func (d *driver) same(err error, want unix.Errno) bool {
	d.t.Helper()
	if Errno(err) != want && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EIO) {
		d.t.Fatalf("got %v, want %v; last operations:\n%v", err, want, d.log[max(0, len(d.log)-20):])
	}
	return err == nil
}

func (d *driver) fresh() string {
	d.n++
	if d.r.IntN(4) == 0 {
		return "n" + strconv.Itoa(d.r.IntN(20))
	}
	return "f" + strconv.Itoa(d.n)
}

func (d *driver) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(d.r.Uint32())
	}
	return b
}

func (d *driver) size() int {
	switch d.r.IntN(10) {
	case 0:
		return d.r.IntN(10) + 1
	case 1, 2:
		if d.quick {
			return d.r.IntN(20_000) + 1
		}
		return d.r.IntN(200_000) + 1
	case 3:
		return 4096
	}
	return d.r.IntN(6000) + 1
}

func (d *driver) off(ino uint64) int64 {
	size := int64(len(d.m.nodes[ino].data))
	switch d.r.IntN(4) {
	case 0:
		return size
	case 1:
		return d.r.Int64N(size + 10_000)
	case 2:
		return d.r.Int64N(size+1) &^ 4095
	}
	return d.r.Int64N(size + 1)
}

// names does one operation on names or attributes.
func (d *driver) names() {
	m, r := d.m, d.r
	switch k := r.IntN(12); k {
	case 0, 1:
		dir, name := m.pickDir(r), d.fresh()
		d.note("create %d %s", dir, name)
		a, err := d.ops.Create(root, dir, name, 0644, true)
		want := unix.Errno(0)
		if m.nodes[dir].entries[name] != 0 {
			want = unix.EEXIST
		}
		if d.same(err, want) {
			m.add(dir, name, a.Ino, unix.S_IFREG|0644, "")
		}
	case 2:
		dir, name := m.pickDir(r), d.fresh()
		d.note("mkdir %d %s", dir, name)
		a, err := d.ops.Mkdir(root, dir, name, 0755)
		want := unix.Errno(0)
		if m.nodes[dir].entries[name] != 0 {
			want = unix.EEXIST
		}
		if d.same(err, want) {
			m.add(dir, name, a.Ino, unix.S_IFDIR|0755, "")
		}
	case 3:
		dir, name := m.pickDir(r), d.fresh()
		d.note("symlink %d %s", dir, name)
		a, err := d.ops.Symlink(root, dir, name, "to/"+name)
		want := unix.Errno(0)
		if m.nodes[dir].entries[name] != 0 {
			want = unix.EEXIST
		}
		if d.same(err, want) {
			m.add(dir, name, a.Ino, unix.S_IFLNK|0777, "to/"+name)
		}
	case 4:
		ino := m.pick(r, func(n *modelNode) bool { return true })
		dir, name := m.pickDir(r), d.fresh()
		d.note("link %d %d %s", ino, dir, name)
		_, err := d.ops.Link(root, ino, dir, name)
		want := unix.Errno(0)
		switch {
		case m.nodes[ino].isDir():
			want = unix.EPERM
		case m.nodes[dir].entries[name] != 0:
			want = unix.EEXIST
		}
		if d.same(err, want) {
			m.nodes[dir].entries[name] = ino
			m.nodes[ino].nlink++
		}
	case 5, 6:
		dir, name := m.pickEntry(r)
		d.remove(dir, name)
	case 7, 8:
		od, on := m.pickEntry(r)
		nd, nn := m.pickEntry(r)
		if r.IntN(2) == 0 {
			nn = d.fresh()
		}
		flags := []uint32{0, 0, unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE}[r.IntN(4)]
		d.note("rename %d %s %d %s %d", od, on, nd, nn, flags)
		before := m.clone()
		want := m.rename(od, on, nd, nn, flags)
		if err := d.ops.Rename(root, od, on, nd, nn, flags); !d.same(err, want) {
			*m = *before
		}
	case 9:
		ino := m.pick(r, func(n *modelNode) bool { return n.mode&unix.S_IFMT != unix.S_IFLNK })
		mode := uint32(r.IntN(01000))
		d.note("chmod %d %o", ino, mode)
		if _, err := d.ops.Setattr(root, ino, SetAttr{Valid: SetMode, Mode: mode}); d.same(err, 0) {
			m.nodes[ino].mode = m.nodes[ino].mode&unix.S_IFMT | mode
		}
	default:
		ino := m.pick(r, func(n *modelNode) bool { return n.mode&unix.S_IFMT != unix.S_IFLNK })
		name, val := "user.k"+strconv.Itoa(r.IntN(4)), d.fresh()
		d.note("xattr %d %s", ino, name)
		if _, has := m.nodes[ino].xattrs[name]; r.IntN(3) == 0 {
			want := unix.Errno(0)
			if !has {
				want = unix.ENODATA
			}
			if d.same(d.ops.Removexattr(root, ino, name), want) {
				delete(m.nodes[ino].xattrs, name)
			}
		} else if d.same(d.ops.Setxattr(root, ino, name, []byte(val), 0), 0) {
			m.nodes[ino].xattrs[name] = val
		}
	}
}

func (d *driver) remove(dir uint64, name string) {
	m := d.m
	ino := m.nodes[dir].entries[name]
	d.note("remove %d %s", dir, name)
	if n := m.nodes[ino]; n != nil && n.isDir() {
		want := unix.Errno(0)
		if len(n.entries) > 0 {
			want = unix.ENOTEMPTY
		}
		if d.same(d.ops.Rmdir(root, dir, name), want) {
			m.unlink(dir, name)
		}
		return
	}
	want := unix.Errno(0)
	if ino == 0 {
		want = unix.ENOENT
	}
	if d.same(d.ops.Unlink(root, dir, name), want) {
		m.unlink(dir, name)
		if m.nodes[ino].nlink == 0 && d.r.IntN(2) == 0 {
			d.f.Forget(ino)
		}
	}
}

// data does one operation on a file's contents.
func (d *driver) data() {
	m, r := d.m, d.r
	ino := m.pickFile(r)
	if ino == 0 {
		return
	}
	n := m.nodes[ino]
	switch r.IntN(10) {
	case 0:
		size := d.off(ino)
		d.note("truncate %d %d", ino, size)
		if _, err := d.f.Setattr(root, ino, SetAttr{Valid: SetSize, Size: size}); d.same(err, 0) {
			m.resize(n, size)
		}
	case 1, 2:
		off, size := d.off(ino), int64(d.size())
		mode := []uint32{0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE,
			unix.FALLOC_FL_ZERO_RANGE, unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE}[r.IntN(5)]
		d.note("fallocate %d %d %d %d", ino, mode, off, size)
		if d.same(d.f.Fallocate(root, ino, mode, off, size), 0) {
			if mode&unix.FALLOC_FL_KEEP_SIZE == 0 && off+size > int64(len(n.data)) {
				m.resize(n, off+size)
			}
			if mode&^unix.FALLOC_FL_KEEP_SIZE != 0 && off < int64(len(n.data)) {
				clear(n.data[off:min(off+size, int64(len(n.data)))])
			}
		}
	case 3:
		to := m.pickFile(r)
		off, at, size := d.off(ino), d.off(to), int64(d.size())
		size = min(size, max(int64(len(n.data))-off, 0))
		if ino == to && off < at+size && at < off+size {
			return
		}
		d.note("copy %d %d to %d %d, %d", ino, off, to, at, size)
		got, err := d.f.CopyRange(root, ino, off, to, at, size)
		if d.same(err, 0) {
			if got != size {
				d.t.Fatalf("copied %d of %d", got, size)
			}
			if size > 0 {
				m.write(to, n.data[off:off+size:off+size], at)
			}
		}
	case 4: // many small writes next to each other
		off := d.off(ino)
		for range 50 {
			b := d.bytes(r.IntN(40) + 1)
			d.note("write %d %d+%d", ino, off, len(b))
			if _, err := d.f.Write(root, ino, b, off, false); !d.same(err, 0) {
				return
			}
			m.write(ino, b, off)
			off += int64(len(b))
		}
	default:
		b, off := d.bytes(d.size()), d.off(ino)
		d.note("write %d %d+%d", ino, off, len(b))
		if _, err := d.f.Write(root, ino, b, off, false); d.same(err, 0) {
			m.write(ino, b, off)
		}
	}
	d.readBack(ino)
}

// readBack compares a random part of a file.
func (d *driver) readBack(ino uint64) {
	n := d.m.nodes[ino]
	off := d.off(ino)
	buf := make([]byte, d.size())
	got, err := d.f.Read(ino, buf, off)
	if err != nil {
		d.t.Fatal(err)
	}
	want := n.data[min(off, int64(len(n.data))):min(off+int64(len(buf)), int64(len(n.data)))]
	if string(buf[:got]) != string(want) {
		d.t.Fatalf("read %d at %d: %d bytes, want %d; last operations:\n%v", ino, off, got, len(want), d.log[max(0, len(d.log)-20):])
	}
}

func (d *driver) step() {
	if d.r.IntN(2) == 0 {
		d.names()
	} else {
		d.data()
	}
}

func (d *driver) compare() {
	d.t.Helper()
	d.check()
	if got, want := d.shape(), d.m.shape(); got != want {
		d.t.Fatalf("fork:\n%s\nmodel:\n%s\nlast operations:\n%v", got, want, d.log[max(0, len(d.log)-20):])
	}
}

func seeds(t *testing.T, n int) []uint64 {
	if s := os.Getenv("TINE_SEED"); s != "" {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{v}
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = uint64(i + 1)
	}
	return list
}

// TestO3_RandomOperationsEqualTheModel also closes and opens the fork, rotates it and runs transactions.
func TestO3_RandomOperationsEqualTheModel(t *testing.T) {
	treesAfterLayers = 2
	defer func() { treesAfterLayers = 32 }()
	for _, seed := range seeds(t, 8) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			d := newDriver(newEnv(t, sampleTree()), seed)
			for i := range 700 {
				d.step()
				switch d.r.IntN(60) {
				case 0:
					d.must(d.f.Fsync(1, false))
				case 1:
					d.reopenSame()
				case 2:
					d.rotate()
				case 3:
					d.txn()
				case 4, 5:
					d.compact()
				}
				if i%50 == 0 {
					d.compare()
				}
			}
			d.compare()
			d.reopenSame()
		})
	}
}

func (d *driver) reopenSame() {
	d.t.Helper()
	before := d.dump()
	d.note("reopen")
	d.reopen()
	d.ops = d.f
	if after := d.dump(); after != before {
		d.t.Fatalf("before closing:\n%s\nafter opening:\n%s\nlast operations:\n%v", before, after, d.log[max(0, len(d.log)-20):])
	}
	d.compare()
}

// compact writes the trees of the live layer and punches its journal.
func (d *driver) compact() {
	d.note("compact")
	d.f.syncMu.Lock()
	defer d.f.syncMu.Unlock()
	d.must(d.f.compact())
}

func (d *driver) rotate() {
	d.note("rotate")
	id := NewLayerID()
	v, err := d.f.Rotate(id)
	d.must(err)
	d.cfg.Layers = append(d.cfg.Layers, id)
	d.must(v.CheckInvariants())
	d.must(v.Close())
}

// txn runs operations in a transaction, and half of the time takes them back.
func (d *driver) txn() {
	d.note("txn")
	before := d.m.clone()
	undo := errors.New("undo")
	err := d.f.Txn(func(tx *Tx) error {
		d.ops = tx
		for range d.r.IntN(8) {
			d.names()
			if ino := d.m.pickFile(d.r); ino != 0 {
				b, off := d.bytes(d.size()), d.off(ino)
				if _, err := tx.Write(root, ino, b, off); err != nil {
					return err
				}
				d.m.write(ino, b, off)
			}
		}
		if d.r.IntN(2) == 0 {
			return undo
		}
		return nil
	})
	d.ops = d.f
	if err == undo {
		d.note("undone")
		*d.m = *before
	} else {
		d.must(err)
	}
	d.compare()
}
