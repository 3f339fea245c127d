package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"tine/overlay/journal"
	"tine/snapshot/durable"
	"tine/snapshot/durable/fault"
)

// copyLayers copies a layers directory.
func copyLayers(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestO3_EveryPrefixOfTheJournalIsAState cuts the journal at every record, and within every record, as kill -9 in the
// middle of a write(2) does.
func TestO3_EveryPrefixOfTheJournalIsAState(t *testing.T) {
	for _, seed := range seeds(t, 3) {
		e := newEnv(t, sampleTree())
		d := newDriver(e, seed)
		d.quick = true
		type point struct {
			tail  int64
			shape string
		}
		points := []point{{journal.HeaderSize, e.shape()}}
		for range 120 {
			d.step()
			points = append(points, point{e.f.log.tail, e.shape()})
		}
		e.close()
		full := e.cfg.LayersDir
		path := filepath.Join(full, e.cfg.Layers[0].String(), "journal")
		all, err := os.ReadFile(path)
		e.must(err)
		rng := rand.New(rand.NewPCG(seed, 1))
		for i, p := range points {
			if p.tail == 0 {
				continue
			}
			cuts := []int64{p.tail}
			if i+1 < len(points) && points[i+1].tail > p.tail+1 {
				cuts = append(cuts, p.tail+1+rng.Int64N(points[i+1].tail-p.tail-1))
			}
			for _, cut := range cuts {
				e.cfg.LayersDir = t.TempDir()
				copyLayers(t, full, e.cfg.LayersDir)
				e.must(os.WriteFile(filepath.Join(e.cfg.LayersDir, e.cfg.Layers[0].String(), "journal"), all[:cut], 0o644))
				e.open()
				// Operations of several records (a row of small writes) make states between the points.
				if got := e.shape(); got != p.shape && cut == p.tail {
					t.Fatalf("seed %d, cut at %d:\n%s\nwant\n%s", seed, cut, got, p.shape)
				}
				e.put(1, "after-the-cut", "data")
				want := e.dump()
				e.reopen()
				if got := e.dump(); got != want {
					t.Fatalf("seed %d, cut at %d, written and opened again:\n%s\nwant\n%s", seed, cut, got, want)
				}
				e.close()
				e.f = nil
			}
		}
	}
}

// TestO3_PowerCut replays what a power cut may leave after any prefix of the recorded writes: the fork opens, is a
// prefix of what was done, and has everything that was fsynced.
func TestO3_PowerCut(t *testing.T) {
	for _, seed := range seeds(t, 4) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { powerCut(t, seed, 60) })
	}
}

func powerCut(t *testing.T, seed uint64, cuts int) {
	treesAfterLayers = 2
	defer func() { treesAfterLayers = 32 }()
	e := newEnv(t, sampleTree())
	e.close()
	ff := fault.New(durable.OS)
	e.cfg.FS = ff
	e.cfg.BootID = [16]byte{1}
	rec, err := ff.Record(e.cfg.LayersDir)
	e.must(err)
	e.open()
	d := newDriver(e, seed)
	d.quick = true
	// states[i] is the state after some operation; the journal has seq[i] records then.
	type point struct {
		seq   uint64
		shape string
	}
	points := []point{{e.f.log.seq, e.shape()}}
	type promise struct {
		events int
		point  int
	}
	var promises []promise
	for range 160 {
		switch d.r.IntN(12) {
		case 0:
			e.must(e.f.Fsync(1, false))
			e.f.background.Wait() // which writes too, and makes Len grow
			promises = append(promises, promise{rec.Len(), len(points) - 1})
			continue
		case 1:
			switch d.r.IntN(6) {
			case 0, 1:
				d.rotate()
				continue
			case 2:
				d.compact()
				continue
			}
		}
		d.step()
		points = append(points, point{e.f.log.seq, e.shape()})
	}
	e.close()
	layers := e.cfg.LayersDir
	rng := rand.New(rand.NewPCG(seed, 2))
	for range cuts {
		n := rng.IntN(rec.Len() + 1)
		var lose *rand.Rand
		if rng.IntN(4) > 0 {
			lose = rng
		}
		e.cfg.LayersDir = filepath.Join(t.TempDir(), "cut")
		e.must(rec.Cut(e.cfg.LayersDir, n, lose))
		e.cfg.FS, e.cfg.BootID = nil, [16]byte{2}
		least := 0
		for _, p := range promises {
			if p.events <= n {
				least = p.point
			}
		}
		f, err := Open(e.cfg)
		if err != nil {
			t.Fatalf("power cut after %d of %d events: %v", n, rec.Len(), err)
		}
		e.f = f
		e.check()
		got := e.shape()
		if seq := f.log.seq; seq < points[least].seq {
			t.Fatalf("power cut after %d events: %d records, %d were fsynced", n, seq, points[least].seq)
		}
		ok := false
		for i := least; i < len(points); i++ {
			ok = ok || points[i].shape == got
		}
		if !ok && !between(points, f.log.seq, func(p point) uint64 { return p.seq }) {
			t.Fatalf("power cut after %d events: no state that was ever there, at record %d\n%s", n, f.log.seq, got)
		}
		// It can be written and opened again, in the same boot and in the next.
		e.put(1, "after-the-cut", "data")
		want := e.dump()
		e.reopen()
		e.close()
		e.cfg.BootID = [16]byte{3}
		e.open()
		if got := e.dump(); got != want {
			t.Fatalf("after the power cut:\n%s\nwant\n%s", got, want)
		}
		e.close()
		os.RemoveAll(e.cfg.LayersDir)
	}
	_ = layers
}

// between reports that seq is within an operation of several records.
func between[P any](points []P, seq uint64, of func(P) uint64) bool {
	for i := 1; i < len(points); i++ {
		if of(points[i-1]) < seq && seq < of(points[i]) {
			return true
		}
	}
	return false
}

// TestEveryFailingWrite fails the Nth write, sync or creation, for all N, with ENOSPC and EIO, before, within and
// after its effect: the operation fails or not, the fork stays one that the model knows, and so after opening again.
func TestEveryFailingWrite(t *testing.T) {
	for _, fail := range []struct {
		when fault.When
		err  error
	}{{fault.Before, unix.ENOSPC}, {fault.Half, unix.ENOSPC}, {fault.After, unix.EIO}} {
		for n := 1; ; n += 1 + n/20 {
			ff := fault.New(durable.OS)
			e := newEnv(t, sampleTree())
			e.close()
			e.cfg.FS = ff
			e.open()
			d := newDriver(e, 11)
			d.quick = true
			ff.FailAt(n, fail.when, fail.err)
			for range 12 {
				was := d.m.clone()
				d.step()
				if got := d.shape(); got != d.m.shape() {
					if got != was.shape() && !ff.Failed() {
						t.Fatalf("n=%d: neither the state before nor after\n%s", n, got)
					}
					// A row of writes may have got half way.
					break
				}
				if d.r.IntN(5) == 0 {
					if err := d.f.Fsync(1, false); err != nil && !ff.Failed() {
						t.Fatal(err)
					}
				}
			}
			failed := ff.Failed()
			ff.Heal()
			e.check()
			before := e.shape()
			err := e.f.Close()
			e.f = nil
			if err != nil && !errors.As(err, new(*BrokenError)) {
				t.Fatalf("n=%d: close: %v", n, err)
			}
			e.open()
			if got := e.shape(); got != before {
				t.Fatalf("n=%d %v: before\n%s\nafter opening\n%s", n, fail.when, before, got)
			}
			e.put(1, "healed", "x")
			e.reopen()
			if !failed {
				break
			}
		}
	}
}
