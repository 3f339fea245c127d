package overlay

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Flipped bits and a cut in what a fork stores were found by nobody: neither by opening it again, nor by fsck.
func TestO5_DamagedDataIsFound(t *testing.T) {
	e := newEnv(t, sampleTree())
	d := newDriver(e, 7)
	for range 300 {
		d.step()
	}
	small := e.put(1, "small", "inline bytes")
	e.put(1, "large", strings.Repeat("0123456789abcdef", 10<<10))
	id := NewLayerID()
	v, err := e.f.Rotate(id)
	e.must(err)
	e.must(v.Close())
	e.cfg.Layers = append(e.cfg.Layers, id)
	e.put(1, "later", strings.Repeat("x", 100<<10))
	_, err = e.f.Write(root, small, []byte("more"), 100, false)
	e.must(err)
	e.must(e.f.VerifyData(t.Context()))
	e.reopen()
	e.must(e.f.VerifyData(t.Context()))
	e.f.Close()
	e.f = nil

	e.cfg.ReadOnly = true
	for _, layer := range e.cfg.Layers {
		path := filepath.Join(e.cfg.LayersDir, layer.String(), "data")
		good, err := os.ReadFile(path)
		e.must(err)
		bad := append([]byte(nil), good...)
		bad[len(bad)-100] ^= 4
		for what, b := range map[string][]byte{"flipped": bad, "cut": good[:len(good)-200]} {
			e.must(os.WriteFile(path, b, 0o644))
			f, err := Open(e.cfg)
			e.must(err)
			if err := f.VerifyData(t.Context()); !errors.As(err, new(*CorruptError)) || !strings.Contains(err.Error(), layer.String()) {
				t.Errorf("%s: %v", what, err)
			}
			f.Close()
		}
		e.must(os.WriteFile(path, good, 0o644))
	}
	e.cfg.ReadOnly = false
	e.open()
}

// Whatever is written, punched, compacted and used again, a sound fork has no fault.
func TestO5_SoundForksVerify(t *testing.T) {
	for _, seed := range seeds(t, 6) {
		e := newEnv(t, sampleTree())
		d := newDriver(e, seed)
		for i := range 600 {
			d.step()
			switch i % 60 {
			case 19:
				e.must(e.f.Fsync(1, false))
				e.f.reclaim()
			case 39:
				e.f.syncMu.Lock()
				err := e.f.compact()
				e.f.syncMu.Unlock()
				e.must(err)
			case 59:
				id := NewLayerID()
				v, err := e.f.Rotate(id)
				e.must(err)
				e.must(v.Close())
				e.cfg.Layers = append(e.cfg.Layers, id)
				d.cfg = e.cfg
			}
			if i%50 == 0 {
				if err := e.f.VerifyData(t.Context()); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, i, err)
				}
			}
		}
		e.must(e.f.VerifyData(t.Context()))
	}
}
