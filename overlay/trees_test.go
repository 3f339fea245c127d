package overlay

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tine/snapshot/image"
)

var update = flag.Bool("update", false, "write golden vectors that don't exist yet")

// treesSample is a state with every part that a trees file can have.
func treesSample(t testing.TB) (*env, *moment) {
	e := newEnv(t, sampleTree())
	e.close()
	e.cfg.Layers = []LayerID{{1, 2, 3}}
	e.cfg.BootID = [16]byte{9}
	e.open()
	c := Caller{UID: 7, GID: 8, Conn: [16]byte{5}, Unique: 42}
	a, err := e.f.Create(c, 1, "new", 0644, true)
	e.must(err)
	_, err = e.f.Write(root, a.Ino, []byte("hello"), 10_000, false)
	e.must(err)
	_, err = e.f.Write(root, e.ino("big"), bytes.Repeat([]byte("B"), 20_000), 5000, false)
	e.must(err)
	e.must(e.f.Fallocate(root, e.ino("big"), 3, 100_000, 5000)) // punch
	_, err = e.f.CopyRange(root, e.ino("big"), 0, a.Ino, 0, 30_000)
	e.must(err)
	e.must(e.f.Setxattr(root, a.Ino, "user.x", []byte("y"), 0))
	_, err = e.f.Symlink(root, e.ino("dir"), "s", "target")
	e.must(err)
	_, err = e.f.Mkdir(root, 1, "d", 0755)
	e.must(err)
	e.must(e.f.Unlink(root, 1, "a"))
	e.must(e.f.Rename(root, 1, "empty", 1, "attrs", 0))
	_, err = e.f.Setattr(root, e.ino("dir/b"), SetAttr{Valid: SetAtime, Atime: image.Time{Sec: -1, Nsec: 1}})
	e.must(err)
	e.f.mu.Lock()
	m := e.f.momentLocked(e.f.table, e.f.log.tail, e.f.log.boot)
	e.f.mu.Unlock()
	t.Cleanup(func() { m.v.Close() })
	return e, m
}

func TestTreesGoldenVector(t *testing.T) {
	_, m := treesSample(t)
	b := encodeTrees(&m.head, m.v.s)
	path := filepath.Join("testdata", "trees-v1.hex")
	text := hex.Dump(b)
	if *update {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			os.MkdirAll("testdata", 0o755)
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

func TestTreesReadBackEqual(t *testing.T) {
	e, m := treesSample(t)
	b := encodeTrees(&m.head, m.v.s)
	s := newState(e.base)
	var h treesHead
	e.must(decodeTrees(b, m.l.id, &h, s))
	v := &View{s: s, table: m.v.table, contents: e.base}
	e.must(s.check())
	if got, want := dump(t, v), dump(t, m.v); got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
	if !bytes.Equal(encodeTrees(&h, s), b) {
		t.Fatal("encodes to other bytes")
	}
	for at := range b {
		bad := bytes.Clone(b)
		bad[at] ^= 4
		if decodeTrees(bad, m.l.id, &treesHead{}, newState(e.base)) == nil {
			t.Fatalf("bit flipped at %d: accepted", at)
		}
	}
}

func FuzzTrees(f *testing.F) {
	_, m := treesSample(f)
	f.Add(encodeTrees(&m.head, m.v.s))
	base := sampleTree()
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 16 {
			return
		}
		// A checksum that fits lets the rest be tried.
		b = append(bytes.Clone(b), 0, 0, 0, 0)
		sumTrees(b, m.l.id)
		s := newState(base)
		if decodeTrees(b, m.l.id, &treesHead{}, s) == nil {
			s.check()
		}
	})
}

func TestRestartReplaysOnlyWhatIsBehindTheTrees(t *testing.T) {
	e := newEnv(t, sampleTree())
	for i := range 200 {
		e.put(1, fmt.Sprint("f", i), strings.Repeat("x", i*10))
		if i%4 == 0 {
			id := NewLayerID()
			v, err := e.f.Rotate(id)
			e.must(err)
			e.cfg.Layers = append(e.cfg.Layers, id)
			v.Close()
		}
	}
	e.reopen() // which may be before any was written
	e.f.background.Wait()
	e.reopen()
	n := 0
	for _, l := range e.cfg.Layers {
		if _, err := os.Stat(filepath.Join(e.cfg.LayersDir, l.String(), treesName)); err == nil {
			n++
		}
	}
	if n == 0 || n > 2 {
		t.Fatalf("%d trees files for %d layers", n, len(e.cfg.Layers))
	}
	if e.f.replayLayers >= treesAfterLayers {
		t.Fatalf("%d layers replayed", e.f.replayLayers)
	}
	// A damaged one is reported.
	want := e.dump()
	e.close()
	for _, l := range e.cfg.Layers {
		path := filepath.Join(e.cfg.LayersDir, l.String(), treesName)
		if b, err := os.ReadFile(path); err == nil {
			bad := bytes.Clone(b)
			bad[len(b)/2] ^= 1
			e.must(os.WriteFile(path, bad, 0o644))
			if _, err := Open(e.cfg); !errors.As(err, new(*CorruptError)) {
				t.Fatalf("damaged: %v", err)
			}
			e.must(os.WriteFile(path, b, 0o644))
		}
	}
	e.open()
	if e.dump() != want {
		t.Fatal("differs")
	}
}

// TestJournalStaysBounded overwrites small blocks for long: the journal must not keep all of them (CASES 29).
func TestJournalStaysBounded(t *testing.T) {
	e := newEnv(t, sampleTree())
	ino := e.put(1, "db", "")
	block := make([]byte, 4096)
	for i := range 30_000 { // 120 MB into 400 KB
		block[0] = byte(i)
		_, err := e.f.Write(root, ino, block, int64(i%100)*4096, false)
		e.must(err)
	}
	e.f.background.Wait()
	var used int64
	for _, name := range []string{"journal", "data", "trees"} {
		used += diskUse(t, filepath.Join(e.cfg.LayersDir, e.cfg.Layers[0].String(), name))
	}
	if used > 80<<20 {
		t.Fatalf("%d bytes of disk for 400 kB", used)
	}
	want := e.dump()
	e.reopen()
	if e.dump() != want {
		t.Fatal("differs after reopening")
	}
}

// sumTrees makes the checksum of a trees file fit.
func sumTrees(b []byte, id LayerID) {
	binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.Update(id.Salt(), castagnoli, b[:len(b)-4]))
}

// diskUse is the space that a file takes, in bytes; 0 if it doesn't exist.
func diskUse(t testing.TB, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil && err != unix.ENOENT {
		t.Fatal(err)
	}
	return st.Blocks * 512
}
