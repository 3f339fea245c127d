package image_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"tine/snapshot/content"
	"tine/snapshot/durable"
	"tine/snapshot/image"
)

// bigBuilder has n nodes in directories of about 20 files, as source trees have.
func bigBuilder(n int) *image.Builder {
	b := image.NewBuilder(content.SHA1)
	b.Add(image.Node{Ino: 1, Mode: 0o040755})
	dirs := []uint64{1}
	for ino := uint64(2); ino <= uint64(n); ino++ {
		parent := dirs[len(dirs)-1-int(ino)%min(len(dirs), 3)]
		t := image.Time{Sec: 1700000000, Nsec: 0}
		node := image.Node{Ino: ino, Mode: 0o100644, Size: 1000, Mtime: t, Ctime: t, Btime: t}
		name := fmt.Sprintf("source_file_%d.go", ino)
		if ino%20 == 2 {
			node.Mode, node.Size = 0o040755, 0
			name = fmt.Sprintf("package%d", ino)
			dirs = append(dirs, ino)
		} else {
			node.Content.Algo = content.GitSHA1
			binary.BigEndian.PutUint64(node.Content.Digest[:], ino*0x9e3779b97f4a7c15)
		}
		b.Add(node)
		b.AddEntry(parent, name, ino)
	}
	return b
}

func bigImage(tb testing.TB, n int) *image.Image {
	path := filepath.Join(tb.TempDir(), "image")
	if _, err := bigBuilder(n).Write(durable.OS, path); err != nil {
		tb.Fatal(err)
	}
	return openImage(tb, path, nil)
}

func BenchmarkBuild100k(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		e, err := bigBuilder(100_000).Encode()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.WriteTo(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen1M(b *testing.B) {
	path := filepath.Join(b.TempDir(), "image")
	if _, err := bigBuilder(1_000_000).Write(durable.OS, path); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		openImage(b, path, nil).Close()
	}
}

// dirents are all names of a tree.
func dirents(tb testing.TB, m *image.Image) (dirs []uint64, all []image.Dirent) {
	todo := []uint64{image.Root}
	for len(todo) > 0 {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		err := m.ReadDir(dir, 0, func(d image.Dirent) bool {
			dirs, all = append(dirs, dir), append(all, d)
			if d.Type == 4 {
				todo = append(todo, d.Ino)
			}
			return true
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	return dirs, all
}

// overDelta is an image of n nodes, and one in which every 20th of them changed.
func overDelta(tb testing.TB, n int) (base, delta *image.Image) {
	base = bigImage(tb, n)
	d, err := image.NewDelta(base)
	if err != nil {
		tb.Fatal(err)
	}
	for ino := uint64(3); ino < uint64(n); ino += 20 {
		node, err := base.Node(ino)
		if err != nil {
			tb.Fatal(err)
		}
		node.Mode = 0o100600
		d.SetNode(node)
	}
	path := filepath.Join(tb.TempDir(), "delta")
	if _, err := d.Write(durable.OS, path); err != nil {
		tb.Fatal(err)
	}
	return base, openImage(tb, path, base)
}

func BenchmarkNode(b *testing.B) {
	base, delta := overDelta(b, 100_000)
	for name, m := range map[string]*image.Image{"base": base, "delta": delta} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			rng := rand.New(rand.NewPCG(1, 1))
			for b.Loop() {
				if _, err := m.Node(1 + rng.Uint64N(100_000)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNodeInOrder is what a walk of a tree does, whose nodes were numbered by one.
func BenchmarkNodeInOrder(b *testing.B) {
	m := bigImage(b, 100_000)
	b.ReportAllocs()
	ino := uint64(0)
	for b.Loop() {
		if _, err := m.Node(1 + ino%100_000); err != nil {
			b.Fatal(err)
		}
		ino++
	}
}

func BenchmarkLookup(b *testing.B) {
	base, delta := overDelta(b, 100_000)
	for name, m := range map[string]*image.Image{"base": base, "delta": delta} {
		dirs, all := dirents(b, m)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			rng := rand.New(rand.NewPCG(1, 1))
			for b.Loop() {
				i := rng.IntN(len(all))
				if _, err := m.Lookup(dirs[i], all[i].Name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadDir(b *testing.B) {
	base, delta := overDelta(b, 100_000)
	for name, m := range map[string]*image.Image{"base": base, "delta": delta} {
		dirs, _ := dirents(b, m)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if err := m.ReadDir(dirs[n%len(dirs)], 0, func(image.Dirent) bool { return true }); err != nil {
					b.Fatal(err)
				}
				n += 1000
			}
		})
	}
}

// BenchmarkDelta seals 100 changed files of 100,000.
func BenchmarkDelta(b *testing.B) {
	base := bigImage(b, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		d, err := image.NewDelta(base)
		if err != nil {
			b.Fatal(err)
		}
		for ino := uint64(3); ino < 100_000; ino += 1000 {
			n, err := base.Node(ino)
			if err != nil {
				b.Fatal(err)
			}
			n.Mode ^= 1
			d.SetNode(n)
		}
		if _, err := d.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}
