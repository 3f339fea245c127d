package content_test

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"testing"
	"testing/iotest"

	"tine/snapshot/content"
)

func encode(t testing.TB, blob []byte) []byte {
	t.Helper()
	r := content.NewLoose(content.FromBytes(blob))
	if r.Size() != content.LooseSize(int64(len(blob))) {
		t.Fatalf("reader of size %d, LooseSize says %d", r.Size(), content.LooseSize(int64(len(blob))))
	}
	b, err := content.ReadAll(r, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Sizes around the ends of stored blocks: the header is 7 to 13 bytes long.
var looseSizes = []int{0, 1, 2, 100, 65520, 65523, 65524, 65525, 65526, 65535, 65536, 131058, 131059, 131060, 131070, 131071, 300001}

func TestLooseEncodingIsTheObject(t *testing.T) {
	for _, n := range looseSizes {
		blob := pattern(uint64(n), n)
		enc := encode(t, blob)
		z, err := zlib.NewReader(bytes.NewReader(enc))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(z)
		if err != nil || !bytes.Equal(got, append(fmt.Appendf(nil, "blob %d\x00", n), blob...)) {
			t.Fatalf("%d: inflates to %d bytes, %v", n, len(got), err)
		}
		r := content.NewLoose(content.FromBytes(blob))
		if err := iotest.TestReader(io.NewSectionReader(r, 0, r.Size()), enc); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		for range 200 {
			off := rand.IntN(len(enc) + 1)
			p := make([]byte, rand.IntN(len(enc)-off+1))
			if err := content.ReadFull(r, p, int64(off)); err != nil || !bytes.Equal(p, enc[off:off+len(p)]) {
				t.Fatalf("%d: ReadAt(%d, %d): %v", n, off, len(p), err)
			}
		}
	}
}

func TestLooseIDIsAFunctionOfTheBytes(t *testing.T) {
	for _, n := range append(looseSizes[:len(looseSizes):len(looseSizes)], content.MaxSmall+3) {
		blob := pattern(uint64(n), n)
		enc := encode(t, blob)
		want := content.BlobID(blob, content.SHA1).Loose()
		got := content.HashBytes(enc, content.SHA1)
		if got.ID != want || got.Size != int64(len(enc)) {
			t.Fatalf("%d: %s, want %s", n, got.ID, want)
		}
		body, ok, err := content.OpenLoose(bytes.NewReader(enc), int64(len(enc)))
		if !ok || err != nil {
			t.Fatal(n, ok, err)
		}
		if err := iotest.TestReader(io.NewSectionReader(body, 0, body.Size()), blob); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		if err := content.Verify(want, enc); err != nil {
			t.Fatal(err)
		}
		// One changed bit anywhere, a byte more or less: not the encoding any more.
		for i := 0; i < len(enc); i += max(1, len(enc)/(1+4000000/(len(enc)+13000))) {
			bad := bytes.Clone(enc)
			bad[i] ^= 1 << (i % 8)
			if id := content.HashBytes(bad, content.SHA1).ID; id.Algo.IsLoose() {
				t.Fatalf("%d: bit flipped in byte %d, id %s", n, i, id)
			}
		}
		for _, bad := range [][]byte{enc[:len(enc)-1], append(bytes.Clone(enc), 0)} {
			if id := content.HashBytes(bad, content.SHA1).ID; id.Algo.IsLoose() {
				t.Fatalf("%d: cut or longer, id %s", n, id)
			}
		}
	}
	// Leading zeroes in the size.
	odd := encode(t, []byte("0123456789"))
	odd = bytes.Replace(odd, []byte("blob 10\x00"), []byte("blob 010"), 1)
	if id := content.HashBytes(odd, content.SHA1).ID; id.Algo.IsLoose() {
		t.Fatal(id)
	}
}

func TestGitReadsLooseEncoding(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git: ", err)
	}
	dir := t.TempDir()
	if out, err := exec.Command(git, "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	blob := pattern(7, 200000)
	id := content.BlobID(blob, content.SHA1).String()[len("git-sha1:"):]
	mkfile(t, dir+"/.git/objects/"+id[:2]+"/"+id[2:], encode(t, blob))
	out, err := exec.Command(git, "-C", dir, "cat-file", "blob", id).Output()
	if err != nil || !bytes.Equal(out, blob) {
		t.Fatal(len(out), err)
	}
}

func FuzzOpenLoose(f *testing.F) {
	for _, n := range looseSizes[:6] {
		f.Add(encode(f, pattern(1, n)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sum := content.HashBytes(data, content.SHA1)
		if sum.ID.Algo.IsLoose() {
			body, ok, err := content.OpenLoose(bytes.NewReader(data), int64(len(data)))
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			blob, err := content.ReadAll(body, 1<<30)
			if err != nil || !bytes.Equal(encode(t, blob), data) {
				t.Fatal("recognised bytes that are not the encoding", err)
			}
		}
	})
}
