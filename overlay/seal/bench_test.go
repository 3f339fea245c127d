package seal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"tine/overlay"
	"tine/snapshot/image"
)

// BenchmarkSealLarge seals a fork with 256 MiB of new bytes in one file: DESIGN's budget is 500 MB/s on two idle cores.
func BenchmarkSealLarge(b *testing.B) {
	data := make([]byte, 256<<20)
	benchSeal(b, int64(len(data)), func(e *bench, i int) {
		rand.NewChaCha8([32]byte{byte(i)}).Read(data)
		e.write(e.put(1, fmt.Sprint("f", i), nil), data, 0)
	})
}

// BenchmarkSealSmall seals 2,000 new files of 4 KiB.
func BenchmarkSealSmall(b *testing.B) {
	data := make([]byte, 4096)
	benchSeal(b, 2000*4096, func(e *bench, i int) {
		for j := range 2000 {
			copy(data, fmt.Sprint(i, j))
			e.put(1, fmt.Sprint("f", i, "-", j), data)
		}
	})
}

func benchSeal(b *testing.B, size int64, change func(e *bench, i int)) {
	e := newBench(b, func(ib *image.Builder, put func(ino uint64, mode uint32, data []byte)) { put(1, 0o040755, nil) })
	b.SetBytes(size)
	for i := range b.N {
		b.StopTimer()
		change(e, i)
		v, err := e.fork.Rotate(overlay.NewLayerID())
		e.must(err)
		b.StartTimer()
		r, err := View(context.Background(), e.store, v, Options{})
		e.must(err)
		if _, err := e.store.TreeID(context.Background(), r.Checkpoint.ID); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		v.Close()
		e.open(r.Checkpoint.ID)
		b.StartTimer()
	}
}
