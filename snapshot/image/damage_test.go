package image_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tine/snapshot/durable"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

// walk reads everything that an image says, through every method, and returns the first error that isn't
// ErrNotExist. It ends for any image that the methods are right about.
func walk(m *image.Image) error {
	var first error
	note := func(err error) {
		if err != nil && first == nil && !errors.Is(err, image.ErrNotExist) {
			first = err
		}
	}
	todo := []uint64{image.Root}
	for len(todo) > 0 {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		_, err := m.NumEntries(dir)
		note(err)
		note(m.ReadDir(dir, 0, func(d image.Dirent) bool {
			_, err := m.Node(d.Ino)
			note(err)
			_, err = m.ContentOf(d.Ino)
			note(err)
			_, err = m.Lookup(dir, d.Name)
			note(err)
			_, err = m.Lookup(dir, d.Name+"x")
			note(err)
			if d.Type == 4 {
				todo = append(todo, d.Ino)
			}
			return true
		}))
	}
	note(m.EachNode(func(image.Node) bool { return true }))
	note(m.EachContent(func(image.ContentRef) bool { return true }))
	note(m.EachChange(func(uint64, bool) bool { return true }, func(uint64, string, uint64) bool { return true }))
	return first
}

func write(t testing.TB, b *image.Builder) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "image")
	if _, err := b.Write(durable.OS, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestO5_EveryFlippedBitIsAnError flips a bit in each part of an image: what is read is right or an error.
func TestO5_EveryFlippedBitIsAnError(t *testing.T) {
	_, b := imagetest.Builder(t, sample()...)
	path := write(t, b)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	for at := 0; at < len(whole); at += 37 {
		data := bytes.Clone(whole)
		data[at] ^= 1 << (at % 8)
		if err := os.WriteFile(bad, data, 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := image.Open(durable.OS, bad, nil)
		if err == nil {
			if err = m.Verify(); err == nil {
				t.Fatalf("byte %d: Verify passes", at)
			}
			err = walk(m)
			m.Close()
		}
		// Padding at the end of the last page is read by nobody but Verify.
		var corrupt *image.CorruptError
		var newer *image.VersionError
		if err != nil && !errors.As(err, &corrupt) && !errors.As(err, &newer) {
			t.Fatalf("byte %d: %v", at, err)
		}
	}
}

// TestO5_TruncatedUnderTheMapping: a page fault beyond the end of the file is an error and not the process's death,
// for the image itself and for a delta over it.
func TestO5_TruncatedUnderTheMapping(t *testing.T) {
	dir := t.TempDir()
	path := write(t, bigBuilder(5000))
	base := openImage(t, path, nil)
	n, err := base.Node(4000)
	if err != nil {
		t.Fatal(err)
	}
	d, err := image.NewDelta(base)
	if err != nil {
		t.Fatal(err)
	}
	n.Mode = 0o100400
	d.SetNode(n)
	if _, err := d.Write(durable.OS, filepath.Join(dir, "delta")); err != nil {
		t.Fatal(err)
	}
	delta := openImage(t, filepath.Join(dir, "delta"), base)
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	var corrupt *image.CorruptError
	for name, err := range map[string]error{
		"node": second(base.Node(3000)), "look-up": second(base.Lookup(image.Root, "source_file_3.go")), "walk": walk(base),
		"verify": base.Verify(), "list": base.ReadDir(image.Root, 0, func(image.Dirent) bool { return true }),
		"delta's node": second(delta.Node(2000)), "delta's walk": walk(delta), "delta's verify": delta.Verify(),
		"new delta": newDelta(base, n), "flatten": second(delta.Builder()),
	} {
		if !errors.As(err, &corrupt) || !strings.Contains(corrupt.Path, "image") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := delta.Node(4000); err != nil && !errors.As(err, &corrupt) {
		t.Errorf("the delta's own node: %v", err)
	}
}

func newDelta(base *image.Image, n image.Node) error {
	d, err := image.NewDelta(base)
	if err != nil {
		return err
	}
	n.Mtime.Sec++
	d.SetNode(n)
	_, err = d.Encode()
	return err
}

// A caller's panic is not taken for damage.
func TestPanicInYieldIsTheCallers(t *testing.T) {
	tree := imagetest.Build(t, imagetest.File("a", "", 0o644))
	defer func() {
		if r := recover(); r != "mine" {
			t.Fatalf("recovered %v", r)
		}
	}()
	_ = tree.ReadDir(image.Root, 0, func(image.Dirent) bool { panic("mine") })
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	_, b := imagetest.Builder(t, sample()...)
	path := write(t, b)
	base := openImage(t, path, nil)
	other := imagetest.Build(t, imagetest.File("a", "", 0o644))
	d, err := image.NewDelta(base)
	if err != nil {
		t.Fatal(err)
	}
	deltaPath := filepath.Join(dir, "delta")
	if _, err := d.Write(durable.OS, deltaPath); err != nil {
		t.Fatal(err)
	}
	if id, err := image.BaseOf(durable.OS, deltaPath); err != nil || id != base.Identity().CheckpointID() {
		t.Errorf("the delta's base is %q, %v", id, err)
	}
	delta := openImage(t, deltaPath, base)
	for name, over := range map[string]*image.Image{"no base": nil, "another base": other.Image, "a delta": delta} {
		if _, err := image.Open(durable.OS, deltaPath, over); err == nil {
			t.Errorf("opened over %s", name)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func([]byte) []byte{
		"empty":       func(b []byte) []byte { return nil },
		"short":       func(b []byte) []byte { return b[:4095] },
		"header only": func(b []byte) []byte { return b[:4096] },
		"cut":         func(b []byte) []byte { return b[:len(b)-1] },
		"longer":      func(b []byte) []byte { return append(b, 0) },
		"text":        func(b []byte) []byte { return bytes.Repeat([]byte("not an image\n"), 4096) },
	} {
		file := filepath.Join(dir, "f")
		if err := os.WriteFile(file, change(bytes.Clone(whole)), 0o644); err != nil {
			t.Fatal(err)
		}
		var corrupt *image.CorruptError
		if _, err := image.Open(durable.OS, file, nil); !errors.As(err, &corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	newer := bytes.Clone(whole)
	newer[8] = 9
	file := filepath.Join(dir, "newer")
	if err := os.WriteFile(file, newer, 0o644); err != nil {
		t.Fatal(err)
	}
	var version *image.VersionError
	if _, err := image.Open(durable.OS, file, nil); !errors.As(err, &version) || version.Version != 9 {
		t.Errorf("another version: %v", err)
	}
	if _, err := image.Open(durable.OS, filepath.Join(dir, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := image.Open(durable.OS, dir, nil); err == nil {
		t.Errorf("a directory was opened")
	}
}
