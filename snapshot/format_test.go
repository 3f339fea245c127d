package snapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"tine/snapshot/content"
	"tine/snapshot/image/imagetest"
)

var makeGolden = flag.Bool("make-golden", false, "write golden vectors that don't exist yet; existing ones are never changed")

// golden compares data with testdata/name.hex, FORMAT.md's example of a format.
func golden(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	want, err := os.ReadFile(path)
	if os.IsNotExist(err) && *makeGolden {
		os.MkdirAll("testdata", 0o755)
		want = []byte(hex.Dump(data))
		err = os.WriteFile(path, want, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.Dump(data); got != string(want) {
		t.Errorf("%s: the format has changed:\n%s\nwas\n%s", name, got, want)
	}
}

func sampleRecords() (recs []record, data [][]byte) {
	id := content.BlobID([]byte("hello\n"), content.SHA1)
	sum := content.HashBytes([]byte("hello\n"), content.SHA1)
	large := content.ID{Algo: content.Tree256, Digest: [32]byte{1, 2, 3}}
	recs = []record{
		{key: contentKey(id), kind: kindBytes, sha256: sum.SHA256, size: 6},
		{key: contentKey(content.ID{Algo: content.GitSHA256, Digest: [32]byte{9}}), kind: kindObject, sha256: [32]byte{7}, size: 1 << 20},
		{key: contentKey(large), kind: kindChunks, size: 9 << 20},
		{key: contentKey(content.ID{Algo: content.GitSHA1, Digest: [32]byte{5}}), kind: kindSame, size: 9 << 20},
		{key: gitIDKey(large, content.SHA1), kind: kindGitID, size: 9 << 20},
	}
	data = [][]byte{[]byte("hello\n"), nil, bytes.Repeat([]byte{0xab}, 9*32), encodeID(large), encodeID(id)}
	return recs, data
}

func TestGoldenSegment(t *testing.T) {
	recs, data := sampleRecords()
	out := encodeSegHeader(0x0123456789abcdef)
	var list []keyed
	for i, r := range recs {
		r.length = int64(len(data[i]))
		r.crc = 0x11223344
		head := make([]byte, recHeaderLen)
		r.encode(head)
		back, err := decodeRecord(head)
		if err != nil || back != r {
			t.Fatalf("%d: %+v, %v; want %+v", i, back, err, r)
		}
		list = append(list, keyed{r.key, location{seg: 0x0123456789abcdef, off: int64(len(out)), length: r.length, size: r.size, kind: r.kind, sha256: r.sha256}})
		out = append(append(out, head...), data[i]...)
		out = append(out, make([]byte, -len(out)&7)...)
	}
	golden(t, "segment-v1", out)
	r := newRun(0x0123456789abcdef, segHeaderLen, int64(len(out)), list)
	golden(t, "index-v1", r.encode())
	back, err := decodeRun(r.encode())
	if err != nil || !bytes.Equal(back.entries, r.entries) || back.fileName() != "0123456789abcdef.20-378.idx" {
		t.Fatal(back.fileName(), err)
	}
	if parsed, ok := parseRunName(r.fileName()); !ok || parsed.from != r.from || parsed.to != r.to || parsed.seg != r.seg {
		t.Fatal("the file's name doesn't come back")
	}
	for _, bad := range []string{"", "x.idx", "0123456789abcdef.20-378", "0123456789abcdef.020-378.idx", "123.20-378.idx", ".tmp-0.idx"} {
		if _, ok := parseRunName(bad); ok {
			t.Errorf("%q is taken for an index", bad)
		}
	}
}

func sampleCheckpoint() Checkpoint {
	c := Checkpoint{TreeID: strings.Repeat("ab", 20), Commit: strings.Repeat("cd", 20), Files: 3, Bytes: 1 << 40, Base: strings.Repeat("12", 32),
		Parent: strings.Repeat("34", 32), Sources: []string{strings.Repeat("56", 16)}}
	c.Identity.Format, c.Identity.ObjectFormat = 1, content.SHA1
	c.Identity.EntriesRoot, c.Identity.NodesRoot = [32]byte{1}, [32]byte{2}
	c.ID = c.Identity.CheckpointID()
	return c
}

func TestGoldenManifest(t *testing.T) {
	c := sampleCheckpoint()
	data, err := c.encode()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "manifest-v1", data)
	canonical, err := jcs.Transform(data)
	if err != nil || !bytes.Equal(canonical, data) {
		t.Errorf("the manifest is not canonical JSON: %s, %v", canonical, err)
	}
	back, err := decodeManifest(c.ID, data)
	if err != nil || back.Base != c.Base || back.Identity != c.Identity || back.Bytes != c.Bytes {
		t.Fatal(back, err)
	}
	for _, edit := range [][2]string{
		{`"files":3`, `"files":4,"files":3`}, {`"files":3`, `"files":3.0`}, {`{`, `{ `}, {`"files":3`, `"files":3,"future":1`}, {`"version":1`, `"version":2`},
		{`"nodes_root":"02`, `"nodes_root":"03`}, {`"format":1`, `"format":2`}, {`"image":"`, `"image":"../`}, {`"parent":"34`, `"parent":"zz`},
		{`"base_image":"12`, `"base_image":"../../../x`}, {`"sha1"`, `"sha3"`}, {`"tree":"ab`, `"tree":"AB`}, {`"files":3`, `"files":-3`}, {`"sources":["56`, `"sources":["5/`},
	} {
		bad := strings.Replace(string(data), edit[0], edit[1], 1)
		if bad == string(data) {
			t.Fatalf("%q isn't in the manifest", edit[0])
		}
		if _, err := decodeManifest(c.ID, []byte(bad)); err == nil {
			t.Errorf("accepted: %s", bad)
		}
	}
}

// testdata/store-v1 is a store of this version, made once. It stays readable for ever.
func TestGoldenStore(t *testing.T) {
	dir := filepath.Join("testdata", "store-v1")
	if _, err := os.Stat(dir); os.IsNotExist(err) && *makeGolden {
		s := openStore(t, dir, Options{Create: true})
		hold(t, s)
		c, err := s.Publish(t.Context(), draft(t, s, imagetest.File("a", "hello\n", 0o644), imagetest.File("dir/b", "", 0o755), imagetest.Symlink("l", "a")))
		if err == nil {
			err = s.Tag(c.ID, "golden", false)
		}
		if err == nil {
			_, err = s.AddSource("test", map[string]string{"Name": "golden"})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		os.Remove(filepath.Join(dir, "lock"))
		os.Remove(filepath.Join(dir, "tmp"))
	}
	s := openStore(t, dir, Options{ReadOnly: true})
	c, err := s.Checkpoint("golden")
	if err != nil || c.ID != "?" && !isID(c.ID) {
		t.Fatal(c, err)
	}
	m, err := s.Tree(c.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	if got := string(readAll(t, s, content.BlobID([]byte("hello\n"), content.SHA1))); got != "hello\n" {
		t.Fatalf("%q", got)
	}
	if tree, err := s.TreeID(t.Context(), c.ID); err != nil || tree != "cf4517f9a59de930661b914f1b8716b4fa28068b" {
		t.Fatal(tree, err)
	}
	if src, err := s.Sources(); err != nil || len(src) != 1 {
		t.Fatal(src, err)
	}
	if p, err := s.Provenance(c.ID); err != nil || len(p) != 1 {
		t.Fatal(p, err)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	recs, _ := sampleRecords()
	for _, r := range recs {
		b := make([]byte, recHeaderLen)
		r.encode(b)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		again := make([]byte, recHeaderLen)
		r.encode(again)
		if !bytes.Equal(again, b[:recHeaderLen]) {
			t.Fatal("accepted what encode doesn't write")
		}
	})
}

func FuzzDecodeIndex(f *testing.F) {
	files, _ := filepath.Glob("testdata/store-v1/segments/*.idx")
	for _, name := range files {
		b, _ := os.ReadFile(name)
		f.Add(b[:len(b)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		// The checksum is put right, or nothing behind it would ever be reached.
		r, err := decodeRun(withCRC(body))
		if err != nil {
			return
		}
		for i := range r.len() {
			l := r.location(i)
			if l.off < r.from || l.off+recHeaderLen+l.length > r.to || !l.kind.valid() {
				t.Fatalf("entry %d: %+v", i, l)
			}
			n := 0
			r.find(recordKey(r.entry(i)[:34]), func(location) bool { n++; return true })
			if n == 0 {
				t.Fatalf("entry %d isn't found", i)
			}
		}
	})
}

func FuzzDecodeManifest(f *testing.F) {
	c := sampleCheckpoint()
	data, _ := c.encode()
	f.Add(data)
	c.Base, c.Sources, c.Commit = "", nil, ""
	data, _ = c.encode()
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodeManifest(c.ID, data)
		if err != nil {
			return
		}
		again, err := got.encode()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("accepted what encode doesn't write: %v", err)
		}
	})
}

func FuzzParseFormat(f *testing.F) {
	f.Add([]byte("tine store 1\nid 00112233445566778899aabbccddeeff\ncompat x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if info, err := parseFormat("x", data); err == nil && len(info.id) != 32 {
			t.Fatal(info)
		}
	})
}

// Every file of a store is cut short and has bits flipped: readers say so or give right bytes, and never crash.
func TestO5_DamagedStoreIsToldNotBelieved(t *testing.T) {
	newRepo(t, t.Name())
	s := newStore(t)
	hold(t, s)
	s.AddSource("test", map[string]string{"Name": t.Name()})
	entries := []imagetest.Entry{imagetest.File("a", "hello", 0o644), imagetest.File("o", string(pattern(3, inlineLimit+1)), 0o644)}
	c, err := s.Publish(t.Context(), draft(t, s, entries...))
	if err == nil {
		err = s.Tag(c.ID, "n", false)
	}
	large := pattern(4, content.MaxSmall+1)
	largeID, err2 := s.Put(large, content.SHA1)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	s.Close()
	good := s.Dir()
	var files []string
	filepath.WalkDir(good, func(p string, d fs.DirEntry, _ error) error {
		if d.Type().IsRegular() {
			rel, _ := filepath.Rel(good, p)
			files = append(files, rel)
		}
		return nil
	})
	try := func(dir string) {
		s, err := Open(dir, Options{ReadOnly: true})
		if err != nil {
			return
		}
		defer s.Close()
		s.List()
		s.Names()
		s.Sources()
		s.Provenance(c.ID)
		for want, id := range map[string]content.ID{entries[0].Data: content.BlobID([]byte(entries[0].Data), content.SHA1), entries[1].Data: content.BlobID([]byte(entries[1].Data), content.SHA1), string(large): largeID} {
			r, err := s.Open(id)
			if err != nil {
				if !strings.Contains(err.Error(), hex.EncodeToString(id.Bytes())) {
					t.Errorf("the error doesn't name the content: %v", err)
				}
				continue
			}
			if got, err := content.ReadAll(r, 1<<30); err == nil && string(got) != want {
				t.Error("wrong bytes")
			}
			r.Close()
		}
		if got, err := s.Checkpoint("n"); err == nil && got.ID != c.ID {
			t.Error("another checkpoint")
		}
		if f, err := s.Files(c.ID); err == nil {
			if tree, err := GitTree(t.Context(), f, content.SHA1, s.GitID); err == nil && hex.EncodeToString(tree) == "" {
				t.Error("no tree")
			}
		}
	}
	for _, rel := range files {
		data, _ := os.ReadFile(filepath.Join(good, rel))
		for i := range 9 {
			path := filepath.Join(good, rel)
			os.Chmod(path, 0o600)
			d := bytes.Clone(data)
			at := len(d) * i / 9
			switch {
			case len(d) == 0:
				d = []byte("x")
			case i%3 == 0:
				d = d[:at]
			default:
				d[at] ^= 1 << (i % 8)
			}
			os.WriteFile(path, d, 0o600)
			try(good)
			os.WriteFile(path, data, 0o600)
		}
	}
	try(good)
}

func withCRC(body []byte) []byte {
	r := append(bytes.Clone(body), 0, 0, 0, 0)
	putCRC(r)
	return r
}

func TestManifestFieldsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	c := sampleCheckpoint()
	data, _ := c.encode()
	var m map[string]json.RawMessage
	json.Unmarshal(data, &m)
	for field := range m {
		if !bytes.Contains(doc, []byte("`"+field+"`")) {
			t.Errorf("FORMAT.md doesn't say what %q is", field)
		}
	}
}

func putCRC(b []byte) {
	n := len(b) - 4
	copy(b[n:], binary.LittleEndian.AppendUint32(nil, crc32.Checksum(b[:n], crcTable)))
}
