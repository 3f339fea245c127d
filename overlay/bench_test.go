package overlay

import (
	"strconv"
	"testing"
	"time"
)

func benchFork(b *testing.B) *Fork {
	b.Helper()
	base := sampleTree()
	f, err := Open(Config{Base: base, Contents: base, LayersDir: b.TempDir(), Layers: []LayerID{NewLayerID()}, ForkID: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	b.ReportAllocs()
	return f
}

func BenchmarkCreate(b *testing.B) {
	f := benchFork(b)
	for i := 0; b.Loop(); i++ {
		if _, err := f.Create(root, 1, strconv.Itoa(i), 0644, true); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreateWrite4K(b *testing.B) {
	f := benchFork(b)
	data := make([]byte, 4096)
	for i := 0; b.Loop(); i++ {
		a, err := f.Create(root, 1, strconv.Itoa(i), 0644, true)
		if err == nil {
			_, err = f.Write(root, a.Ino, data, 0, false)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite4K(b *testing.B) { benchWrite(b, 4096) }
func BenchmarkWrite1M(b *testing.B) { benchWrite(b, 1<<20) }

func benchWrite(b *testing.B, size int) {
	f := benchFork(b)
	a, err := f.Create(root, 1, "f", 0644, true)
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, size)
	b.SetBytes(int64(size))
	for i := 0; b.Loop(); i++ {
		if _, err := f.Write(root, a.Ino, data, int64(i%64*size), false); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead4KInline(b *testing.B) {
	f := benchFork(b)
	a, _ := f.Create(root, 1, "f", 0644, true)
	f.Write(root, a.Ino, make([]byte, 4096), 0, false)
	buf := make([]byte, 4096)
	b.ResetTimer()
	for b.Loop() {
		if _, err := f.Read(a.Ino, buf, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	f := benchFork(b)
	for i := range 10_000 {
		f.Create(root, 1, strconv.Itoa(i), 0644, true)
	}
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		if _, err := f.Lookup(1, "5000"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetattr(b *testing.B) {
	f := benchFork(b)
	a, _ := f.Create(root, 1, "f", 0644, true)
	b.ResetTimer()
	for b.Loop() {
		if _, err := f.Getattr(a.Ino); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnlink(b *testing.B) {
	f := benchFork(b)
	for i := range 200_000 {
		f.Create(root, 1, strconv.Itoa(i), 0644, true)
	}
	b.ResetTimer()
	i := 0
	for b.Loop() {
		if i == 200_000 {
			b.Skip("ran out")
		}
		if err := f.Unlink(root, 1, strconv.Itoa(i)); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkRotate(b *testing.B) {
	f := benchFork(b)
	for i := range 50_000 {
		f.Create(root, 1, strconv.Itoa(i), 0644, true)
	}
	b.ResetTimer()
	var in time.Duration
	n := 0
	for i := 0; b.Loop(); i++ {
		f.Create(root, 1, "r"+strconv.Itoa(i), 0644, true)
		start := time.Now()
		v, err := f.Rotate(NewLayerID())
		in += time.Since(start)
		n++
		if err != nil {
			b.Fatal(err)
		}
		v.Close()
	}
	b.ReportMetric(float64(in.Nanoseconds())/float64(n), "ns/rotation")
}

func BenchmarkOpenIdle(b *testing.B) {
	base := sampleTree()
	dir := b.TempDir()
	b.ReportAllocs()
	for b.Loop() {
		f, err := Open(Config{Base: base, Contents: base, LayersDir: dir, Layers: []LayerID{NewLayerID()}, ForkID: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
