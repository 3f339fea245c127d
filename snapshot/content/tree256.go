package content

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// treeFanout is the number of children of an inner node of the SHA-256 tree: 32 KiB of digests are hashed a level, so
// that one changed chunk of a 1 TiB content re-hashes 1 MiB of data and 64 KiB of digests.
const treeFanout = 1024

// treeMagic starts what the root is the SHA-256 of.
const treeMagic = "tine.tree256.v1\x00"

// NumChunks is the number of chunks of a content of size bytes.
func NumChunks(size int64) int { return int((size + ChunkSize - 1) / ChunkSize) }

// ChunkLen is the length in bytes of chunk i of a content of size bytes.
func ChunkLen(size int64, i int) int64 { return min(ChunkSize, size-int64(i)*ChunkSize) }

// HashChunk is a chunk's digest: its plain SHA-256. Chunks of zeroes, which are common in sparse files, are recognised
// instead of hashed.
func HashChunk(data []byte) [32]byte {
	if len(data) == ChunkSize && IsZero(data) {
		return ZeroChunk(ChunkSize)
	}
	return sha256.Sum256(data)
}

var zeroPage [4096]byte

// IsZero reports whether all bytes of b are 0.
func IsZero(b []byte) bool {
	for len(b) > len(zeroPage) {
		if !bytes.Equal(b[:len(zeroPage)], zeroPage[:]) {
			return false
		}
		b = b[len(zeroPage):]
	}
	return bytes.Equal(b, zeroPage[:len(b)])
}

var zeroFull = sync.OnceValue(func() [32]byte { return sha256.Sum256(make([]byte, ChunkSize)) })

// ZeroChunk is the digest of n bytes of zeroes, n <= ChunkSize. Such a chunk needs no storage.
func ZeroChunk(n int64) [32]byte {
	if n == ChunkSize {
		return zeroFull()
	}
	h := sha256.New()
	for n > 0 {
		k := min(n, int64(len(zeroPage)))
		h.Write(zeroPage[:k])
		n -= k
	}
	var d [32]byte
	h.Sum(d[:0])
	return d
}

// TreeRoot is the Tree256 id of a content of size bytes with these chunks (FORMAT.md "Content ids").
func TreeRoot(size int64, chunks [][32]byte) ID {
	level := chunks
	for len(level) > 1 {
		up := make([][32]byte, 0, (len(level)+treeFanout-1)/treeFanout)
		for len(level) > 0 {
			n := min(len(level), treeFanout)
			h := sha256.New()
			h.Write([]byte{1}) // an inner node is never mistaken for a chunk
			for i := range level[:n] {
				h.Write(level[i][:])
			}
			var d [32]byte
			h.Sum(d[:0])
			up = append(up, d)
			level = level[n:]
		}
		level = up
	}
	h := sha256.New()
	h.Write([]byte(treeMagic))
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(size))
	h.Write(b[:])
	for i := range level {
		h.Write(level[i][:])
	}
	id := ID{Algo: Tree256}
	h.Sum(id.Digest[:0])
	return id
}
