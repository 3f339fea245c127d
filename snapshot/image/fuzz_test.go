package image_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"tine/snapshot/durable"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

// reseal makes an image's checksums right again, as an attacker would.
func reseal(data []byte) {
	if len(data) < 4096 {
		return
	}
	le, table := binary.LittleEndian, crc32.MakeTable(crc32.Castagnoli)
	le.PutUint64(data[24:], uint64(len(data)))
	off := le.Uint64(data[192+16*11:])
	if off >= 4096 && off <= uint64(len(data)) && off%4096 == 0 {
		for p := uint64(1); p < off/4096 && off+4*p <= uint64(len(data)); p++ {
			le.PutUint32(data[off+4*(p-1):], crc32.Checksum(data[p*4096:(p+1)*4096], table))
		}
		le.PutUint32(data[160:], crc32.Checksum(data[off:], table))
	}
	le.PutUint32(data[4092:], crc32.Checksum(data[:4092], table))
}

// patch changes places of an image: each 13 bytes of script say where, how wide and to what.
func patch(data, script []byte) []byte {
	data = bytes.Clone(data)
	le := binary.LittleEndian
	for ; len(script) >= 13; script = script[13:] {
		at := int(le.Uint32(script)) % (len(data) - 8)
		v := le.Uint64(script[5:])
		switch script[4] % 6 {
		case 0:
			data[at] = byte(v)
		case 1:
			le.PutUint32(data[at&^3:], uint32(v))
		case 2:
			le.PutUint64(data[at&^7:], v)
		case 3:
			le.PutUint32(data[at&^3:], le.Uint32(data[at&^3:])+uint32(int8(v)))
		case 4:
			le.PutUint64(data[at&^7:], le.Uint64(data[at&^7:])+uint64(int8(v)))
		case 5: // copy a record of 16 bytes from elsewhere
			from := int(v % uint64(len(data)-16))
			copy(data[at&^15:], data[from&^15:from&^15+16])
		}
	}
	return data
}

type hostile struct {
	base, delta []byte
	open        *image.Image // base
	dir         string
}

func newHostile(t testing.TB) *hostile {
	h := &hostile{dir: t.TempDir()}
	tree, b := imagetest.Builder(t, sample()...)
	path := write(t, b)
	h.open = openImage(t, path, nil)
	d, err := image.NewDelta(h.open)
	if err != nil {
		t.Fatal(err)
	}
	n, err := h.open.Node(tree.Inos["README"])
	if err != nil {
		t.Fatal(err)
	}
	n.Xattrs = []image.Xattr{{Name: "user.new", Value: []byte("v")}}
	d.SetNode(n)
	d.SetNode(image.Node{Ino: 100, Mode: 0o040700})
	d.SetEntry(image.Root, "new", 100)
	d.RemoveEntry(image.Root, "dir")
	d.SetEntry(100, "moved", tree.Inos["dir"])
	d.RemoveEntry(image.Root, "empty")
	d.RemoveNode(tree.Inos["empty"])
	deltaPath := filepath.Join(h.dir, "delta")
	if _, err := d.Write(durable.OS, deltaPath); err != nil {
		t.Fatal(err)
	}
	if err := openImage(t, deltaPath, h.open).Verify(); err != nil {
		t.Fatal(err)
	}
	h.base, _ = os.ReadFile(path)
	h.delta, _ = os.ReadFile(deltaPath)
	return h
}

// try opens bytes as an image and does with it all that can be done. Only panics, hangs and Verify passing what it
// shouldn't are failures.
func (h *hostile) try(t testing.TB, data []byte) {
	path := filepath.Join(h.dir, "hostile")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := image.Open(durable.OS, path, h.open)
	if err != nil {
		return
	}
	defer m.Close()
	walkErr := walk(m)
	if m.Verify() == nil && walkErr != nil {
		t.Fatalf("Verify passes and reading fails: %v", walkErr)
	}
	d, err := image.NewDelta(m)
	if err != nil {
		return
	}
	if n, err := m.Node(2); err == nil {
		n.Mtime.Sec++
		d.SetNode(n)
	}
	d.SetNode(image.Node{Ino: 1 << 50, Mode: 0o010600})
	d.SetEntry(image.Root, "fifo", 1<<50)
	d.RemoveEntry(image.Root, "sub")
	_, _ = d.Encode()
}

func FuzzOpen(f *testing.F) {
	h := newHostile(f)
	f.Add(h.base)
	f.Add(h.delta)
	f.Fuzz(func(t *testing.T, data []byte) { h.try(t, data) })
}

// FuzzHostile changes an image and makes its checksums right again.
func FuzzHostile(f *testing.F) {
	h := newHostile(f)
	f.Add(false, []byte("0123456789abc"))
	f.Add(true, []byte("0123456789abc"))
	f.Fuzz(func(t *testing.T, delta bool, script []byte) {
		data := h.base
		if delta {
			data = h.delta
		}
		data = patch(data, script)
		reseal(data)
		h.try(t, data)
	})
}

// TestHostileImages is FuzzHostile for random scripts that mostly hit what is used.
func TestHostileImages(t *testing.T) {
	h := newHostile(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 1500 {
		data := h.base
		if rng.IntN(2) == 0 {
			data = h.delta
		}
		// sections begin in the second page; the header's fields end at 400
		used := uint64(len(data)) - 4096
		var script []byte
		for range 1 + rng.IntN(3) {
			at := 4096 + rng.Uint64N(used)
			if rng.IntN(8) == 0 {
				at = rng.Uint64N(400)
			}
			script = binary.LittleEndian.AppendUint32(script, uint32(at))
			script = append(script, byte(rng.Uint32()))
			v := rng.Uint64()
			if rng.IntN(2) == 0 {
				v >>= 60
			}
			script = binary.LittleEndian.AppendUint64(script, v)
		}
		data = patch(data, script)
		reseal(data)
		h.try(t, data)
	}
}

// TestDirectoryCyclesEnd makes a directory's entry name its own parent, and one directory have two names: every walk
// ends with an error.
func TestDirectoryCyclesEnd(t *testing.T) {
	tree, b := imagetest.Builder(t, imagetest.Dir("a", 0o755), imagetest.Dir("a/b", 0o755), imagetest.Dir("a/b/c", 0o755), imagetest.Dir("a/b/d", 0o755))
	path := write(t, b)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	entries := int(le.Uint64(whole[192+16*2:]))
	for name, change := range map[string]func(b []byte){
		"c is a":           func(b []byte) { le.PutUint64(b[entries+16*2:], tree.Inos["a"]) },
		"c is the root":    func(b []byte) { le.PutUint64(b[entries+16*2:], image.Root) },
		"d is c once more": func(b []byte) { le.PutUint64(b[entries+16*3:], tree.Inos["a/b/c"]) },
	} {
		data := bytes.Clone(whole)
		change(data)
		reseal(data)
		if err := os.WriteFile(path+name, data, 0o644); err != nil {
			t.Fatal(err)
		}
		m := openImage(t, path+name, nil)
		if err := walk(m); err == nil {
			t.Errorf("%s: the walk gives no error", name)
		}
		if err := m.Verify(); err == nil {
			t.Errorf("%s: Verify passes", name)
		}
	}
}
