package snapshot

import (
	"context"
	"fmt"
	"testing"

	"tine/snapshot/content"
	"tine/snapshot/image/imagetest"
)

func BenchmarkPutSmall(b *testing.B) {
	s := newStore(b)
	hold(b, s)
	data := pattern(1, 4096)
	b.SetBytes(4096)
	for i := range b.N {
		copy(data, fmt.Sprint(i))
		if _, err := s.Put(data, content.SHA1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPutLarge(b *testing.B) {
	s := newStore(b)
	hold(b, s)
	data := pattern(1, 64<<20)
	b.SetBytes(int64(len(data)))
	for i := range b.N {
		for c := 0; c < len(data); c += content.ChunkSize {
			copy(data[c:], fmt.Sprint(i))
		}
		if _, err := s.PutReader(content.FromBytes(data), int64(len(data)), content.SHA1); err != nil {
			b.Fatal(err)
		}
	}
}

func benchStored(b *testing.B, n, size int) (*Store, []content.ID) {
	s := newStore(b)
	hold(b, s)
	ids := make([]content.ID, n)
	for i := range ids {
		data := pattern(uint64(i), size)
		var err error
		if ids[i], err = s.Put(data, content.SHA1); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Sync(); err != nil {
		b.Fatal(err)
	}
	return s, ids
}

func benchOpen(b *testing.B, s *Store, ids []content.ID, size, piece int) {
	b.SetBytes(int64(size))
	b.ReportAllocs()
	buf := make([]byte, piece)
	b.ResetTimer()
	for i := range b.N {
		r, err := s.Open(ids[i%len(ids)])
		if err != nil {
			b.Fatal(err)
		}
		for off := 0; off < size; off += piece {
			if err := content.ReadFull(r, buf[:min(piece, size-off)], int64(off)); err != nil {
				b.Fatal(err)
			}
		}
		r.Close()
	}
}

func BenchmarkOpenSmallCold(b *testing.B) {
	s, ids := benchStored(b, 10000, 4096) // 40 MB: more than is kept hot
	benchOpen(b, s, ids, 4096, 4096)
}

func BenchmarkOpenSmallHot(b *testing.B) {
	s, ids := benchStored(b, 100, 4096)
	benchOpen(b, s, ids, 4096, 4096)
}

func BenchmarkReadObject(b *testing.B) {
	s, ids := benchStored(b, 10, 4<<20)
	benchOpen(b, s, ids, 4<<20, 128<<10)
}

func BenchmarkReadChunks(b *testing.B) {
	s, ids := benchStored(b, 1, 64<<20)
	benchOpen(b, s, ids, 64<<20, 128<<10)
}

func BenchmarkHydrateSmall(b *testing.B) {
	r := newRepo(b, b.Name())
	s := newStore(b)
	if _, err := s.AddSource("test", map[string]string{"Name": b.Name()}); err != nil {
		b.Fatal(err)
	}
	ids := make([]content.ID, b.N)
	for i := range ids {
		data := append(pattern(1, 4096), fmt.Sprint(i)...)
		ids[i] = content.BlobID(data, content.SHA1)
		r.blobs[ids[i]] = data
	}
	b.ResetTimer()
	for _, id := range ids {
		c, err := s.Open(id)
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}

func BenchmarkTreeID(b *testing.B) {
	s := newStore(b)
	hold(b, s)
	var entries []imagetest.Entry
	for i := range 20000 {
		entries = append(entries, imagetest.File(fmt.Sprintf("d%d/e%d/f%d", i%10, i%500, i), "x", 0o644))
	}
	c, err := s.Publish(context.Background(), draft(b, s, entries...))
	if err != nil {
		b.Fatal(err)
	}
	f, err := s.Files(c.ID)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		if _, err := GitTree(context.Background(), f, content.SHA1, s.GitID); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPublishUnchangedIndex(b *testing.B) {
	s, _ := benchStored(b, 20000, 100)
	for i := range b.N { // what a small seal costs in a store that has much
		if _, err := s.Put(fmt.Appendf(nil, "seal %d", i), content.SHA1); err != nil {
			b.Fatal(err)
		}
		if err := s.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}
