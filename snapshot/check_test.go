package snapshot

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tine/snapshot/content"
	"tine/snapshot/image/imagetest"
)

func checked(t *testing.T, s *Store, opt CheckOptions) (CheckStats, []string) {
	t.Helper()
	var problems []string
	stats, err := s.Check(t.Context(), opt, func(p Problem) { problems = append(problems, p.String()) })
	if err != nil {
		t.Fatal(err)
	}
	if stats.Problems != len(problems) {
		t.Fatal(stats, problems)
	}
	return stats, problems
}

// checkStore is a store with one checkpoint of every kind of content.
func checkStore(t *testing.T) (*Store, Checkpoint) {
	r := newRepo(t, t.Name())
	r.blobs[content.BlobID([]byte("lazy"), content.SHA1)] = []byte("lazy")
	s := newStore(t)
	h := hold(t, s)
	defer h.Release()
	if _, err := s.AddSource("test", map[string]string{"Name": t.Name()}); err != nil {
		t.Fatal(err)
	}
	entries := []imagetest.Entry{
		imagetest.File("a", "hello", 0o644), imagetest.File("d/object", string(pattern(3, inlineLimit+1)), 0o644), imagetest.File("many", string(pattern(4, 5000)), 0o644),
	}
	d := draft(t, s, entries...)
	_, b := imagetest.Builder(t, append(entries, imagetest.File("d/lazy", "lazy", 0o644))...)
	d.Image, _ = b.Encode()
	c, err := s.Publish(t.Context(), d)
	if err == nil {
		err = s.Tag(c.ID, "named", false)
	}
	if err == nil {
		_, err = s.Put(pattern(5, content.MaxSmall+1), content.SHA1)
	}
	if err == nil {
		err = s.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func TestCheckOfASoundStore(t *testing.T) {
	s, c := checkStore(t)
	for _, opt := range []CheckOptions{{}, {Full: true}, {Checkpoint: c.ID, Full: true}} {
		stats, problems := checked(t, s, opt)
		if len(problems) > 0 || stats.Checkpoints != 1 || stats.Contents != 4 || stats.InSources != 1 {
			t.Errorf("%+v %v", stats, problems)
		}
	}
	if s.Has(content.BlobID([]byte("lazy"), content.SHA1)) {
		t.Error("checking has fetched a content")
	}
	if _, err := s.Check(t.Context(), CheckOptions{Checkpoint: strings.Repeat("0", 64)}, nil); err == nil {
		t.Error("no error for a checkpoint that doesn't exist")
	}
}

// Each file of the store is damaged in turn: a full check finds it.
func TestCheckFindsEveryDamage(t *testing.T) {
	s, _ := checkStore(t)
	s.Close()
	dir := s.Dir()
	var files []string
	filepath.WalkDir(dir, func(p string, d fs.DirEntry, _ error) error {
		rel, _ := filepath.Rel(dir, p)
		if d.Type().IsRegular() && rel != "lock" && !strings.HasSuffix(rel, ".jsonl") {
			files = append(files, rel)
		}
		return nil
	})
	for _, rel := range files {
		path := filepath.Join(dir, rel)
		data, _ := os.ReadFile(path)
		os.Chmod(path, 0o600)
		for i := range 8 {
			bad := bytes.Clone(data)
			bad[len(bad)*i/8] ^= 0x11
			os.WriteFile(path, bad, 0o600)
			s, err := Open(dir, Options{ReadOnly: true})
			if err != nil {
				if rel != "format" {
					t.Fatal(err)
				}
				continue
			}
			_, problems := checked(t, s, CheckOptions{Full: true})
			s.Close()
			if len(problems) == 0 && rel != "format" && !padding(rel, len(data)*i/8) {
				t.Errorf("a flipped bit in %s at %d of %d is not found", rel, len(data)*i/8, len(data))
			}
		}
		os.WriteFile(path, data, 0o600)
	}
}

// padding tells the bytes of no meaning: between the segment's records.
func padding(rel string, at int) bool { return false }

func TestCheckNamesTheFileThatSuffers(t *testing.T) {
	s, c := checkStore(t)
	object := s.objectPath(content.BlobID(pattern(3, inlineLimit+1), content.SHA1))
	os.Chmod(object, 0o600)
	os.WriteFile(object, pattern(6, inlineLimit+1), 0o600)
	repos.Delete(t.Name())
	other := openStore(t, s.Dir(), Options{ReadOnly: true})
	_, problems := checked(t, other, CheckOptions{Checkpoint: c.ID, Full: true})
	text := strings.Join(problems, "\n")
	if len(problems) != 2 || !strings.Contains(text, `("d/object")`) || !strings.Contains(text, `such as "d/lazy"`) || !strings.Contains(text, "1 content depends on it") || !strings.Contains(text, "put the repository back") || !strings.Contains(text, "is gone") {
		t.Fatal(text)
	}
}

// Repair makes the index again from the segment, and what is lost can be fetched again.
func TestRepairRebuildsIndexes(t *testing.T) {
	for _, damage := range []string{"index", "record", "header", "no index"} {
		t.Run(damage, func(t *testing.T) {
			s, c := checkStore(t)
			s.Close()
			idx, _ := filepath.Glob(s.path("segments", "*.idx"))
			seg, _ := filepath.Glob(s.path("segments", "*.seg"))
			spoil := func(path string, find []byte) {
				os.Chmod(path, 0o600)
				data, _ := os.ReadFile(path)
				at := 100
				if find != nil {
					at = bytes.Index(data, find)
				}
				if at < 0 {
					t.Fatal("nothing to spoil")
				}
				data[at] ^= 1
				os.WriteFile(path, data, 0o600)
			}
			switch damage {
			case "index":
				spoil(idx[0], nil)
			case "record":
				spoil(seg[0], pattern(4, 5000)[:20])
			case "header":
				sum := content.HashBytes(pattern(4, 5000), content.SHA1)
				spoil(seg[0], sum.SHA256[:])
			case "no index":
				sum := content.HashBytes(pattern(4, 5000), content.SHA1)
				spoil(idx[0], nil)
				spoil(seg[0], sum.SHA256[:])
			}
			os.WriteFile(s.path("tmp", ".tmp-left"), []byte("x"), 0o600)
			s = openStore(t, s.Dir(), Options{})
			stats, problems := checked(t, s, CheckOptions{Full: true, Repair: true})
			if stats.Repaired == 0 {
				t.Fatal("nothing repaired: ", problems)
			}
			if _, err := os.Stat(s.path("tmp", ".tmp-left")); err == nil {
				t.Error("a dead process's file is still there")
			}
			defer hold(t, s).Release()
			if _, err := s.Put(pattern(4, 5000), content.SHA1); err != nil { // the lost content comes back
				t.Fatal(err)
			}
			if _, problems := checked(t, s, CheckOptions{Full: true}); len(problems) > 0 {
				t.Errorf("after the repair: %v", problems)
			}
			s.Close()
			s = openStore(t, s.Dir(), Options{ReadOnly: true})
			if _, problems := checked(t, s, CheckOptions{Full: true}); len(problems) > 0 {
				t.Errorf("after the repair, opened again: %v", problems)
			}
			for _, data := range [][]byte{[]byte("hello"), pattern(3, inlineLimit+1), pattern(4, 5000), pattern(5, content.MaxSmall+1)} {
				if !bytes.Equal(readAll(t, s, content.HashBytes(data, content.SHA1).ID), data) {
					t.Error("other bytes")
				}
			}
			_ = c
		})
	}
}

// A file whose contents look like a record that says that one content is another doesn't become one by a repair.
func TestRepairBelievesNoContents(t *testing.T) {
	s := newStore(t)
	h := hold(t, s)
	victim := content.BlobID([]byte("victim"), content.SHA1)
	evil, _ := s.Put([]byte("evil"), content.SHA1)
	forged := record{key: contentKey(victim), kind: kindSame, size: 4, length: 33, crc: 0}
	body := encodeID(evil)
	forged.crc = crcOf(body)
	buf := make([]byte, forged.span())
	forged.encode(buf)
	copy(buf[recHeaderLen:], body)
	carrier, err := s.Put(bytes.Repeat(buf, 3), content.SHA1)
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
	s.Close()
	segs, _ := filepath.Glob(s.path("segments", "*.seg"))
	data, _ := os.ReadFile(segs[0])
	at := bytes.Index(data, carrier.Bytes())
	data[at] ^= 1
	os.WriteFile(segs[0], data, 0o600)
	idx, _ := filepath.Glob(s.path("segments", "*.idx"))
	os.Remove(idx[0])
	os.WriteFile(idx[0], []byte("broken"), 0o600)
	s = openStore(t, s.Dir(), Options{})
	checked(t, s, CheckOptions{Full: true, Repair: true})
	if r, err := s.Open(victim); err == nil {
		b, _ := content.ReadAll(r, 100)
		t.Fatalf("the forged record is believed: %q", b)
	}
	if _, err := s.Open(evil); err != nil {
		t.Fatal(err)
	}
}

func ExampleProblem() {
	fmt.Println(Problem{Kind: "content", Object: "git-sha1:ce01", Checkpoint: strings.Repeat("ab", 32), Path: "dir/f", Err: fs.ErrNotExist, Repaired: true})
	// Output: content git-sha1:ce01 of checkpoint abababababababab ("dir/f"): file does not exist (repaired)
}

func crcOf(b []byte) uint32 { return crc32.Checksum(b, crcTable) }

// A content whose record is damaged is stored again by whoever has it, without a repair.
func TestO5_DamagedContentIsMendedByStoringItAgain(t *testing.T) {
	for _, data := range [][]byte{[]byte("small, to be damaged"), pattern(1, inlineLimit+1), pattern(2, content.MaxSmall+1)} {
		s := newStore(t)
		h := hold(t, s)
		id, err := s.Put(data, content.SHA1)
		if err != nil {
			t.Fatal(err)
		}
		h.Release()
		s.Close()
		filepath.WalkDir(s.Dir(), func(p string, d fs.DirEntry, _ error) error {
			b, _ := os.ReadFile(p)
			if at := bytes.Index(b, data[:16]); at >= 0 {
				b[at+5] ^= 1
				os.Chmod(p, 0o600)
				os.WriteFile(p, b, 0o600)
			}
			return nil
		})
		s = openStore(t, s.Dir(), Options{})
		if r, err := s.Open(id); err == nil {
			if _, err := content.ReadAll(r, 1<<30); err == nil {
				t.Fatal("damage that is not found")
			}
		}
		hold(t, s)
		if _, err := s.Put(data, content.SHA1); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(readAll(t, s, id), data) {
			t.Fatal("other bytes")
		}
	}
}

func TestSourceOfAnotherProcessIsFound(t *testing.T) {
	s := newStore(t)
	id := content.BlobID([]byte("x"), content.SHA1)
	if _, err := s.Open(id); err == nil {
		t.Fatal("found in nothing")
	}
	newRepo(t, t.Name(), []byte("x"))
	if _, err := openStore(t, s.Dir(), Options{}).AddSource("test", map[string]string{"Name": t.Name()}); err != nil {
		t.Fatal(err)
	}
	readAll(t, s, id)
}
