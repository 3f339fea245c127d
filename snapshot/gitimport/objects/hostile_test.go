package objects

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// craftedPack writes a pack of raw entries with an index that claims the given ids.
func craftedPack(t *testing.T, dir string, ids []ID, entries [][]byte) {
	t.Helper()
	body := append([]byte("PACK"), 0, 0, 0, 2, 0, 0, 0, byte(len(entries)))
	at := map[ID]uint32{}
	for i, e := range entries {
		at[ids[i]] = uint32(len(body))
		body = append(body, e...)
	}
	body = append(body, make([]byte, 20)...)
	ids = append([]ID(nil), ids...)
	sort.Slice(ids, func(i, j int) bool { return bytes.Compare(ids[i][:], ids[j][:]) < 0 })
	idx := []byte("\xfftOc\x00\x00\x00\x02")
	for i := range 256 {
		n := 0
		for _, id := range ids {
			if int(id[0]) <= i {
				n++
			}
		}
		idx = binary.BigEndian.AppendUint32(idx, uint32(n))
	}
	for _, id := range ids {
		idx = append(idx, id[:]...)
	}
	idx = append(idx, make([]byte, 4*len(ids))...)
	for _, id := range ids {
		idx = binary.BigEndian.AppendUint32(idx, at[id])
	}
	idx = append(idx, make([]byte, 40)...)
	os.MkdirAll(filepath.Join(dir, "pack"), 0o755)
	for suffix, b := range map[string][]byte{".pack": body, ".idx": idx} {
		if err := os.WriteFile(filepath.Join(dir, "pack", "pack-"+strings.Repeat("1", 40)+suffix), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// refDeltaOn is a packed delta with n bytes of instructions, all zero but the sizes.
func refDeltaOn(base ID, n int) []byte {
	data := make([]byte, n)
	data[0], data[1] = 10, 10
	b := []byte{7<<4 | byte(n&15)}
	for rest := n >> 4; rest > 0; rest >>= 7 {
		b[len(b)-1] |= 0x80
		b = append(b, byte(rest&0x7f))
	}
	var z bytes.Buffer
	w, _ := zlib.NewWriterLevel(&z, zlib.BestCompression)
	w.Write(data)
	w.Close()
	return append(append(b, base[:]...), z.Bytes()...)
}

// A pack whose deltas go in a circle, each of which inflates to 32 MiB, took all memory before the chain was found to
// be endless.
func TestDeltaCircleCostsNoMemory(t *testing.T) {
	dir := t.TempDir()
	a, b := ID{0xaa}, ID{0xbb}
	craftedPack(t, dir, []ID{a, b}, [][]byte{refDeltaOn(b, 32<<20), refDeltaOn(a, 32<<20)})
	db := Open(dir)
	defer db.Close()
	start := time.Now()
	_, _, err := db.Read(a)
	var c *CorruptError
	if !errors.As(err, &c) || !strings.Contains(c.Why, "doesn't end") {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Fatalf("found after %v", d)
	}
}

// A chain that ends, but only behind more instructions than memory holds.
func TestDeltaChainOfHugeInstructions(t *testing.T) {
	dir := t.TempDir()
	var ids []ID
	var entries [][]byte
	one := refDeltaOn(ID{}, 64<<20)
	head := len(one) - len(one) + 1
	for one[head-1]&0x80 != 0 {
		head++
	}
	for i := range 8 {
		ids = append(ids, ID{byte(i + 1)})
		e := bytes.Clone(one)
		next := ID{byte(i + 2)}
		copy(e[head:], next[:])
		entries = append(entries, e)
	}
	craftedPack(t, dir, ids, entries)
	db := Open(dir)
	defer db.Close()
	_, _, err := db.Read(ids[0])
	var c *CorruptError
	if !errors.As(err, &c) || !strings.Contains(c.Why, "larger than any") {
		t.Fatal(err)
	}
}

// Reading a repository in which a FIFO lies where an object, a pack or an index belongs waited for ever.
func TestFIFOsInPlaceOfFiles(t *testing.T) {
	id := HashObject(Blob, []byte("x"))
	hx := id.String()
	for _, name := range []string{hx[:2] + "/" + hx[2:], "pack/pack-" + strings.Repeat("2", 40) + ".idx"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := unix.Mkfifo(path, 0o644); err != nil {
			t.Fatal(err)
		}
		db := Open(dir)
		for what, read := range map[string]func() error{
			"Read": func() error { _, _, err := db.Read(id); return err },
			"Size": func() error { _, err := db.Size(id); return err },
		} {
			done := make(chan error, 1)
			go func() { done <- read() }()
			select {
			case err := <-done:
				if !errors.As(err, new(*NotRegularError)) {
					t.Errorf("%s, %s: %v", name, what, err)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s, %s: still waiting", name, what)
			}
		}
		db.Close()
	}
}

func TestDevNullIsAnEmptyFile(t *testing.T) {
	if b, err := ReadRegular("/dev/null", 10); err != nil || len(b) != 0 {
		t.Fatal(b, err)
	}
	if _, err := ReadRegular("/dev/zero", 10); !errors.As(err, new(*NotRegularError)) {
		t.Fatal(err)
	}
	big := filepath.Join(t.TempDir(), "big")
	os.WriteFile(big, nil, 0o644)
	os.Truncate(big, 1<<33)
	if _, err := ReadRegular(big, 1<<20); !errors.As(err, new(*TooLargeError)) {
		t.Fatal(err)
	}
}
