package journal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tine/snapshot/image"
)

var update = flag.Bool("update", false, "write golden vectors that don't exist yet")

var testID = LayerID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// samples is one record of each kind and form.
func samples() []*Record {
	t := image.Time{Sec: 1_700_000_000, Nsec: 999_999_999}
	old := image.Time{Sec: -1, Nsec: 1}
	one := func(seq uint64, e ...Effect) *Record {
		return &Record{Seq: seq, Gen: 3, Begin: true, Commit: true, Time: t, Effects: e}
	}
	list := []*Record{
		one(1, Effect{Kind: Session, Boot: [16]byte{0xb0}, Conn: [16]byte{0xc0}}),
		one(2, Effect{Kind: New, Ino: 2, Mode: 0100644, UID: 1000, GID: 100, Nlink: 1},
			Effect{Kind: Link, Dir: 1, Name: "file", Ino: 2, Type: 8, Pos: 1 << 40}),
		one(3, Effect{Kind: New, Ino: 3, Mode: 0120777, Nlink: 1, Data: []byte("target")}),
		one(4, Effect{Kind: New, Ino: 4, Mode: 0040755, Nlink: 2, Parent: 1}),
		one(5, Effect{Kind: New, Ino: 5, Mode: 0020600, Nlink: 1, Rdev: 0x103}),
		one(6, Effect{Kind: Attr, Ino: 2, Mask: maskEnd - 1, Mode: 0600, UID: 1, GID: 2, Nlink: 3, Parent: 4, Atime: old, Mtime: t, Ctime: image.Time{}}),
		one(7, Effect{Kind: Unlink, Dir: 1, Name: "file"}),
		one(8, Effect{Kind: Inline, Ino: 2, Off: 4096, Data: []byte("inline bytes"), Flags: FlagTouch}),
		one(9, Effect{Kind: Block, Ino: 2, Off: 8192, Len: 1 << 20, Loc: 4096, CRC: 0xdeadbeef, Flags: FlagTouch | FlagKeepSize}),
		one(10, Effect{Kind: Size, Ino: 2, Len: 100, Flags: FlagTouch}),
		one(11, Effect{Kind: Zero, Ino: 2, Off: 10, Len: 20, Flags: FlagReserved}),
		one(12, Effect{Kind: SetXattr, Ino: 2, Name: "user.k", Data: []byte{0, 1, 2}}, Effect{Kind: DelXattr, Ino: 2, Name: "user.k"}),
		one(13, Effect{Kind: Drop, Ino: 5}, Effect{Kind: DropOrphans}),
		one(14, Effect{Kind: Sync, Off: 13, Len: 7}),
		one(15, Effect{Kind: Clone, Ino: 2, Off: 0, Len: 50, Dst: 4, DstOff: 60, Flags: FlagTouch}),
		{Seq: 16, Gen: 1 << 40, Begin: true, Time: t, HasReply: true, Unique: 1<<63 + 8, Value: 77, Effects: []Effect{{Kind: Drop, Ino: 1}}},
		{Seq: 17, Commit: true, Time: old},
	}
	return list
}

// comparable removes what encoding derives.
func plain(r *Record) Record {
	c := *r
	c.Effects = nil
	for _, e := range r.Effects {
		e.At = 0
		if e.Kind == Inline {
			e.Len = int64(len(e.Data))
		}
		if len(e.Data) == 0 {
			e.Data = nil
		}
		c.Effects = append(c.Effects, e)
	}
	return c
}

func encodeAll(t testing.TB) (file []byte, h Header) {
	h = Header{Layer: testID, Parent: LayerID{9}, FirstSeq: 1, Gen: 3, Boot: [16]byte{0xb0}, Fork: "f0f0", Base: strings.Repeat("ab", 32)}
	file, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range samples() {
		file = Append(file, testID.Salt(), r)
	}
	return file, h
}

// TestGoldenVectors: the bytes of version 1 never change. Vectors are only added.
func TestGoldenVectors(t *testing.T) {
	file, _ := encodeAll(t)
	path := filepath.Join("testdata", "journal-v1.hex")
	text := hex.Dump(file)
	if *update {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Fatalf("encoding differs from %s:\n%s", path, text)
	}
}

func TestReaderReadsWhatAppendWrote(t *testing.T) {
	file, h := encodeAll(t)
	got, err := ReadHeader(bytes.NewReader(file))
	if err != nil || got != h {
		t.Fatalf("header %+v, %v", got, err)
	}
	for _, tail := range []int{0, 1, 7, 8, 100, 70_000} { // zeroes allocated ahead
		b := append(bytes.Clone(file), make([]byte, tail)...)
		r := NewReader(bytes.NewReader(b), &h, int64(len(b)))
		var rec Record
		for _, want := range samples() {
			at, err := r.Next(&rec)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range rec.Effects {
				if len(e.Data) > 0 && !bytes.Equal(b[at+e.At:at+e.At+int64(len(e.Data))], e.Data) {
					t.Fatalf("record %d: data is not at %d", rec.Seq, e.At)
				}
			}
			if g, w := plain(&rec), plain(want); !reflect.DeepEqual(g, w) {
				t.Fatalf("got %+v\nwant %+v", g, w)
			}
		}
		if _, err := r.Next(&rec); err != io.EOF || r.Offset() != int64(len(file)) {
			t.Fatalf("end: %v at %d", err, r.Offset())
		}
	}
}

func TestEveryPrefixEndsAtARecord(t *testing.T) {
	file, h := encodeAll(t)
	for n := HeaderSize; n < len(file); n++ {
		r := NewReader(bytes.NewReader(file[:n]), &h, int64(n))
		var rec Record
		var err error
		for err == nil {
			_, err = r.Next(&rec)
		}
		if err != io.EOF && !errors.As(err, new(*BadRecordError)) {
			t.Fatalf("prefix of %d: %v", n, err)
		}
		if at, err := r.FindLater(func(*Record) bool { return true }); at != 0 || err != nil {
			t.Fatalf("prefix of %d: later record at %d, %v", n, at, err)
		}
	}
}

func TestDamageIsFoundAndLaterRecordsToo(t *testing.T) {
	file, h := encodeAll(t)
	for at := HeaderSize; at < len(file); at++ {
		b := bytes.Clone(file)
		b[at] ^= 1
		r := NewReader(bytes.NewReader(b), &h, int64(len(b)))
		var rec Record
		var err error
		n := 0
		for err == nil {
			if _, err = r.Next(&rec); err == nil {
				n++
			}
		}
		if !errors.As(err, new(*BadRecordError)) {
			t.Fatalf("bit flipped at %d: %v after %d records", at, err, n)
		}
		later, err := r.FindLater(func(*Record) bool { return true })
		if err != nil || (later != 0) != (n < len(samples())-1) {
			t.Fatalf("bit flipped at %d, in record %d: later one at %d, %v", at, n, later, err)
		}
	}
	// Another layer's records are no records of this one.
	other := h
	other.Layer[0] ^= 1
	r := NewReader(bytes.NewReader(file), &other, int64(len(file)))
	if at, _ := r.FindLater(func(*Record) bool { return true }); at != 0 {
		t.Fatalf("found another layer's record at %d", at)
	}
}

func TestHeaderRefusals(t *testing.T) {
	_, h := encodeAll(t)
	good, _ := h.Encode()
	for at := range good {
		b := bytes.Clone(good)
		b[at] ^= 0x80
		if _, err := ReadHeader(bytes.NewReader(b)); err == nil {
			t.Fatalf("bit flipped at %d: accepted", at)
		}
	}
	if _, err := ReadHeader(bytes.NewReader(nil)); err != io.EOF {
		t.Fatal(err)
	}
	if _, err := ReadHeader(bytes.NewReader(good[:100])); err != io.ErrUnexpectedEOF {
		t.Fatal(err)
	}
	if _, err := ReadHeader(bytes.NewReader(make([]byte, HeaderSize))); err != ErrNoHeader {
		t.Fatal(err)
	}
	good[8] = 2
	if _, err := ReadHeader(bytes.NewReader(good)); !errors.As(err, new(*VersionError)) {
		t.Fatal(err)
	}
	h.Fork = strings.Repeat("x", 129)
	if _, err := h.Encode(); err == nil {
		t.Fatal("long fork id accepted")
	}
}

func TestLayerIDsParse(t *testing.T) {
	id := NewLayerID()
	if got, err := ParseLayerID(id.String()); err != nil || got != id {
		t.Fatalf("%v %v", got, err)
	}
	for _, bad := range []string{"", "x", strings.Repeat("g", 32), strings.Repeat("A", 32), id.String() + "0"} {
		if _, err := ParseLayerID(bad); err == nil {
			t.Fatalf("accepted %q", bad)
		}
	}
}

// FuzzDecode: no input crashes or makes memory out of proportion, and what is accepted has one encoding.
func FuzzDecode(f *testing.F) {
	for _, r := range samples() {
		f.Add(Append(nil, testID.Salt(), r)[frame:])
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var r Record
		if Decode(p, &r) != nil {
			return
		}
		if enc := Append(nil, testID.Salt(), &r)[frame:]; !bytes.Equal(enc, p) {
			t.Fatalf("accepted %x, encodes as %x", p, enc)
		}
	})
}

// FuzzReader feeds whole files.
func FuzzReader(f *testing.F) {
	file, _ := encodeAll(f)
	f.Add(file)
	f.Add(append(bytes.Clone(file[:700]), make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ReadHeader(bytes.NewReader(b))
		if err != nil {
			h = Header{Layer: testID, FirstSeq: 1}
		}
		r := NewReader(bytes.NewReader(b), &h, int64(len(b)))
		var rec Record
		for err = nil; err == nil; {
			_, err = r.Next(&rec)
		}
		r.FindLater(func(*Record) bool { return true })
	})
}

func BenchmarkAppendInline4K(b *testing.B) {
	data := make([]byte, 4096)
	var buf []byte
	testSalt := testID.Salt()
	rec := &Record{Seq: 1, Begin: true, Commit: true}
	b.SetBytes(4096)
	b.ReportAllocs()
	for b.Loop() {
		rec.Effects = rec.Effects[:0]
		e := rec.Add(Inline)
		e.Ino, e.Data = 2, data
		buf = Append(buf[:0], testSalt, rec)
	}
	_ = fmt.Sprint(len(buf))
}
