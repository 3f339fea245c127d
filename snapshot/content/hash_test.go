package content_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"tine/snapshot/content"
)

// pattern is n bytes that depend on seed only.
func pattern(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
	return b
}

// The vectors are git's (`git hash-object`) and, for large contents, FORMAT.md's; they never change.
func TestL3_GoldenIDs(t *testing.T) {
	big := make([]byte, content.MaxSmall+1)
	for i := range big {
		big[i] = byte(i / content.ChunkSize)
	}
	for _, c := range []struct {
		name string
		data []byte
		f    content.ObjectFormat
		want string
	}{
		{"empty", nil, content.SHA1, "git-sha1:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"},
		{"empty", nil, content.SHA256, "git-sha256:473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813"},
		{"hello", []byte("hello\n"), content.SHA1, "git-sha1:ce013625030ba8dba906f756967f9e9ca394464a"},
		{"zeroes", make([]byte, content.MaxSmall), content.SHA1, "git-sha1:ea1a949c28e181bbb22d99ce24f090420c751457"},
		{"zeroes", make([]byte, content.MaxSmall+1), content.SHA1, "tree-sha256:7e6c94150b78866d9cd74d4db38b7f32ff53a8f4f5ab35608a6c7ffa90a4f28a"},
		{"steps", big, content.SHA1, "tree-sha256:1b247dcd2a7d2af2dfae5379700c4d3742214b77e6f627811f9b6173a3ca3f74"},
		{"steps", big, content.SHA256, "tree-sha256:1b247dcd2a7d2af2dfae5379700c4d3742214b77e6f627811f9b6173a3ca3f74"},
	} {
		got := content.HashBytes(c.data, c.f)
		if got.ID.String() != c.want {
			t.Errorf("%s in %s: %s, want %s", c.name, c.f, got.ID, c.want)
		}
		again, err := content.Hash(bytes.NewReader(c.data), int64(len(c.data)), c.f)
		if err != nil || again.ID != got.ID || again.SHA256 != got.SHA256 || len(again.Chunks) != len(got.Chunks) {
			t.Errorf("%s: Hash and HashBytes differ: %v %v", c.name, again.ID, err)
		}
		if err := content.Verify(got.ID, c.data); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := content.Verify(got.ID, append(bytes.Clone(c.data), 1)); err == nil {
			t.Errorf("%s: a longer content verifies", c.name)
		}
	}
}

// The definition of FORMAT.md written out a second time, for two levels of inner nodes.
func TestTreeRootIsTheDefinition(t *testing.T) {
	for _, n := range []int{9, 1023, 1024, 1025, 3000, 1024*1024 + 1} {
		chunks := make([][32]byte, n)
		for i := range chunks {
			binary.LittleEndian.PutUint64(chunks[i][:], uint64(i))
		}
		size := int64(n)*content.ChunkSize - 5
		var level []byte
		for i := range chunks {
			level = append(level, chunks[i][:]...)
		}
		for len(level) > 32 {
			var up []byte
			for len(level) > 0 {
				k := min(len(level), 1024*32)
				d := sha256.Sum256(append([]byte{1}, level[:k]...))
				up, level = append(up, d[:]...), level[k:]
			}
			level = up
		}
		want := sha256.Sum256(append(binary.LittleEndian.AppendUint64([]byte("tine.tree256.v1\x00"), uint64(size)), level...))
		if got := content.TreeRoot(size, chunks); got.Digest != want {
			t.Errorf("%d chunks: %s, want %x", n, got, want)
		}
	}
}

func TestZeroChunk(t *testing.T) {
	for _, n := range []int{0, 1, 4095, 4096, 4097, 700000, content.ChunkSize} {
		z := make([]byte, n)
		want := sha256.Sum256(z)
		if content.ZeroChunk(int64(n)) != want || content.HashChunk(z) != want || !content.IsZero(z) {
			t.Errorf("%d zeroes", n)
		}
		if n > 0 {
			z[n-1] = 1
			if content.IsZero(z) || content.HashChunk(z) == want {
				t.Errorf("%d bytes ending in 1 taken for zeroes", n)
			}
		}
	}
}

func TestHashOfShortSourceFails(t *testing.T) {
	for _, n := range []int64{10, content.MaxSmall + 10} {
		if _, err := content.Hash(bytes.NewReader(make([]byte, n-1)), n, content.SHA1); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func TestIDText(t *testing.T) {
	id := content.BlobID([]byte("x"), content.SHA1)
	back, err := content.Parse(id.String())
	if err != nil || back != id || id.Loose().Blob() != id || !id.Loose().Algo.IsLoose() {
		t.Fatal(back, err)
	}
	for _, bad := range []string{"", "git-sha1", "git-sha1:", "git-sha1:00", "none:00", "x:" + hex.EncodeToString(id.Bytes())} {
		if _, err := content.Parse(bad); err == nil {
			t.Errorf("%q parses", bad)
		}
	}
}
