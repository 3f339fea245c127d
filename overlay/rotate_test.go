package overlay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// child opens a fork of a view in the same layers directory.
func (e *env) child(v *View, name string) *env {
	e.t.Helper()
	c := &env{t: e.t, base: e.base, cfg: e.cfg}
	c.cfg.ForkID = name
	c.cfg.Layers = append(v.Layers(), NewLayerID())
	f, err := v.Fork(c.cfg)
	e.must(err)
	c.f = f
	c.check()
	e.t.Cleanup(func() {
		if c.f != nil {
			c.close()
		}
	})
	return c
}

// TestO4_ViewsNeverChange takes views and forks of a fork under random changes, also of files that are written across
// rotations, and compares each with what the model was at its instant.
func TestO4_ViewsNeverChange(t *testing.T) {
	for _, seed := range seeds(t, 3) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			e := newEnv(t, sampleTree())
			d := newDriver(e, seed)
			type instant struct {
				v     *View
				shape string
			}
			var past []instant
			drivers := []*driver{d}
			for i := range 400 {
				x := drivers[d.r.IntN(len(drivers))]
				x.step()
				if i%40 != 39 {
					continue
				}
				var v *View
				var err error
				if d.r.IntN(3) == 0 {
					v, err = x.f.View()
				} else {
					id := NewLayerID()
					v, err = x.f.Rotate(id)
					x.cfg.Layers = append(x.cfg.Layers, id)
					if err == nil && len(drivers) < 4 {
						c := x.env.child(v, fmt.Sprint("child", len(drivers)))
						cd := newDriver(c, seed*100+uint64(i))
						cd.m = x.m.clone()
						drivers = append(drivers, cd)
					}
				}
				x.must(err)
				past = append(past, instant{v, x.m.shape()})
				if d.r.IntN(2) == 0 {
					x.must(x.f.Fsync(1, false))
					x.f.reclaim()
				}
			}
			for i, p := range past {
				d.must(p.v.CheckInvariants())
				if got := shapeOf(e, p.v); got != p.shape {
					t.Fatalf("view %d changed to\n%s\nfrom\n%s", i, got, p.shape)
				}
			}
			for _, x := range drivers {
				x.compare()
			}
			for _, p := range past {
				d.must(p.v.Close())
			}
			for _, x := range drivers {
				x.reopenSame()
			}
		})
	}
}

// TestO4_ForkOfALiveForkIsOneInstant checks the kinds of changes that others leak (CASES 24).
func TestO4_ForkOfALiveForkIsOneInstant(t *testing.T) {
	e := newEnv(t, sampleTree())
	ino := e.put(1, "large", strings.Repeat("L", 300_000))
	small := e.put(1, "small", "small")
	v, err := e.f.Rotate(NewLayerID())
	e.must(err)
	c := e.child(v, "child")
	before := c.dump()
	// Parent's later writes.
	_, err = e.f.Write(root, ino, bytes.Repeat([]byte("p"), 100_000), 50_000, false)
	e.must(err)
	_, err = e.f.Write(root, small, []byte("P"), 0, false)
	e.must(err)
	_, err = e.f.Setattr(root, e.ino("a"), SetAttr{Valid: SetMode | SetSize, Mode: 0, Size: 2})
	e.must(err)
	e.must(e.f.Rename(root, 1, "dir", 1, "dir2", 0))
	e.must(e.f.Unlink(root, 1, "empty"))
	e.must(e.f.Setxattr(root, e.ino("attrs"), "user.one", []byte("p"), 0))
	e.must(e.f.Fsync(1, false))
	if got := c.dump(); got != before {
		t.Fatalf("child sees its parent's writes:\n%s\nwant\n%s", got, before)
	}
	parent := e.dump()
	_, err = c.f.Write(root, ino, bytes.Repeat([]byte("c"), 200_000), 0, false)
	c.must(err)
	c.must(c.f.Unlink(root, 1, "small"))
	c.f.Forget(small)
	c.must(c.f.Rename(root, 1, "big", 1, "big2", 0))
	c.must(c.f.Fsync(1, false))
	if got := e.dump(); got != parent {
		t.Fatalf("parent sees its child's writes:\n%s\nwant\n%s", got, parent)
	}
	if got := dump(t, v); got != before {
		t.Fatal("the view changed")
	}
	e.must(v.Close())
	want := c.dump()
	c.reopen()
	if got := c.dump(); got != want {
		t.Fatalf("child after reopening:\n%s\nwant\n%s", got, want)
	}
}

// TestO4_OrphansStayInTheLiveFork: an unlinked file that is open goes on in its fork and is in no view.
func TestO4_OrphansStayInTheLiveFork(t *testing.T) {
	e := newEnv(t, sampleTree())
	ino := e.put(1, "open", "still here")
	a := e.ino("a")
	e.must(e.f.Unlink(root, 1, "open"))
	e.must(e.f.Unlink(root, 1, "a"))
	id := NewLayerID()
	v, err := e.f.Rotate(id)
	e.must(err)
	e.cfg.Layers = append(e.cfg.Layers, id)
	defer v.Close()
	if _, err := v.Node(ino); err == nil {
		t.Fatal("orphan in the view")
	}
	inodes, _ := v.Counts()
	baseInodes, _ := e.base.Counts()
	if inodes != baseInodes-1 {
		t.Fatalf("view counts %d inodes", inodes)
	}
	_, err = e.f.Write(root, ino, []byte("!"), 10, false)
	e.must(err)
	at, err := e.f.Getattr(ino)
	e.must(err)
	if at.Nlink != 0 || e.read(ino) != "still here!" || e.read(a) != "content of a" {
		t.Fatalf("nlink %d, %q", at.Nlink, e.read(ino))
	}
	c := e.child(v, "child")
	if _, err := c.f.Getattr(ino); Errno(err) != unix.ENOENT {
		t.Fatalf("orphan in the child: %v", err)
	}
	// A server that takes over keeps them, an ordinary one doesn't.
	e.close()
	e.cfg.KeepOrphans = true
	e.open()
	if len(e.f.Orphans()) != 2 || e.read(ino) != "still here!" {
		t.Fatalf("orphans %v", e.f.Orphans())
	}
	e.f.Forget(ino)
	e.close()
	e.open()
	if o := e.f.Orphans(); len(o) != 1 || o[0] != a {
		t.Fatalf("orphans %v", o)
	}
	e.close()
	e.cfg.KeepOrphans = false
	e.open()
	if len(e.f.Orphans()) != 0 {
		t.Fatal("orphans without takeover")
	}
	e.put(1, "x", "x")
	e.close()
	e.cfg.KeepOrphans = true
	e.open()
	if len(e.f.Orphans()) != 0 {
		t.Fatal("ended orphans came back")
	}
}

func TestO4_DeeplyNestedForksStayFlat(t *testing.T) {
	e := newEnv(t, sampleTree())
	cur := e
	depth := 300
	for i := range depth {
		cur.put(1, fmt.Sprint("level", i), fmt.Sprint("data of ", i))
		v, err := cur.f.Rotate(NewLayerID())
		cur.must(err)
		next := cur.child(v, fmt.Sprint("f", i))
		cur.must(v.Close())
		if cur != e {
			cur.f.Close()
			cur.f = nil
		}
		cur = next
	}
	cur.put(1, "top", "x")
	want := cur.dump()
	cur.reopen()
	if got := cur.dump(); got != want {
		t.Fatal("differs after reopening")
	}
	if n := len(cur.names(1)); n != len(e.base.entries[1])+depth+1 {
		t.Fatalf("%d names", n)
	}
}

// TestO1_ParallelForksAreIsolated writes to many forks at once (CASES 25).
func TestO1_ParallelForksAreIsolated(t *testing.T) {
	base := sampleTree()
	var wg sync.WaitGroup
	dir := t.TempDir()
	for i := range 16 {
		wg.Go(func() {
			f, err := Open(Config{Base: base, Contents: base, LayersDir: dir, Layers: []LayerID{NewLayerID()}, ForkID: fmt.Sprint(i)})
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			r := rand.New(rand.NewPCG(uint64(i), 0))
			for j := range 100 {
				a, err := f.Create(root, 1, fmt.Sprint("f", j), 0644, true)
				if err == nil {
					_, err = f.Write(root, a.Ino, fmt.Appendf(nil, "%d.%d %s", i, j, strings.Repeat("x", r.IntN(30_000))), 0, false)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
			buf := make([]byte, 10)
			for j := range 100 {
				a, err := f.Lookup(1, fmt.Sprint("f", j))
				if err != nil {
					t.Error(err)
					return
				}
				n, err := f.Read(a.Ino, buf, 0)
				if want := fmt.Sprintf("%d.%d ", i, j); err != nil || !strings.HasPrefix(string(buf[:n]), want) {
					t.Errorf("fork %d file %d: %q, %v", i, j, buf[:n], err)
				}
			}
		})
	}
	wg.Wait()
}
