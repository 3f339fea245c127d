package objects

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+t.TempDir(), "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org",
		"GIT_COMMITTER_NAME=C", "GIT_COMMITTER_EMAIL=c@example.org", "GIT_AUTHOR_DATE=1700000000 +0100", "GIT_COMMITTER_DATE=1700000000 +0100")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// history makes a repository with delta chains of trees and blobs, a tag, and large and empty blobs.
func history(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "config", "gc.auto", "0")
	text := ""
	for i := range 400 {
		text += fmt.Sprintf("line %d %x\n", i, i*i*7919)
	}
	for i := range 30 {
		os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755)
		for k := range 12 {
			name := filepath.Join(dir, "a", "b", fmt.Sprintf("f%d", k))
			if i == 0 || k == i%12 {
				os.WriteFile(name, []byte(text+fmt.Sprintf("%d %d\n", i, k)), 0o644)
			}
		}
		os.WriteFile(filepath.Join(dir, "empty"), nil, 0o644)
		big := bytes.Repeat([]byte(fmt.Sprintf("%08d", i%3)), 1<<17)
		os.WriteFile(filepath.Join(dir, "big"), big, 0o755)
		git(t, dir, "add", ".")
		git(t, dir, "commit", "-q", "-m", fmt.Sprint("commit ", i))
	}
	git(t, dir, "tag", "-a", "-m", "a tag", "v1")
	return dir
}

// checkAll compares every object with what git says.
func checkAll(t *testing.T, dir string, db *DB) int {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(git(t, dir, "cat-file", "--batch-all-objects", "--batch-check")), "\n")
	for _, line := range lines {
		f := strings.Fields(line)
		id := fromHex(t, f[0])
		size, err := db.Size(id)
		if err != nil || strconv.FormatInt(size, 10) != f[2] {
			t.Fatalf("size of %s: %d, %v", line, size, err)
		}
		typ, data, err := db.Read(id)
		if err != nil || typ.String() != f[1] || strconv.Itoa(len(data)) != f[2] {
			t.Fatalf("%s: %v of %d bytes, %v", line, typ, len(data), err)
		}
		var buf bytes.Buffer
		typ, n, err := db.Stream(id, &buf)
		if err != nil || typ.String() != f[1] || n != size || !bytes.Equal(buf.Bytes(), data) {
			t.Fatalf("stream %s: %v %d %v", line, typ, n, err)
		}
	}
	return len(lines)
}

func fromHex(t testing.TB, s string) ID {
	t.Helper()
	var b []byte
	if _, err := fmt.Sscanf(s, "%x", &b); err != nil || len(b) != 20 {
		t.Fatalf("not an id: %q", s)
	}
	return ID(b)
}

func TestEveryObjectLooseAndPacked(t *testing.T) {
	dir := history(t)
	objects := filepath.Join(dir, ".git", "objects")
	db := Open(objects)
	defer db.Close()
	n := checkAll(t, dir, db)
	// The same DB must follow a repack that deletes what it has seen.
	git(t, dir, "gc", "-q", "--prune=now")
	if m := checkAll(t, dir, db); m != n || n < 100 {
		t.Fatalf("%d objects loose, %d packed", n, m)
	}
	git(t, dir, "repack", "-q", "-a", "-d", "-f", "--depth=50", "--window=50")
	checkAll(t, dir, db)
	old := t.TempDir()
	git(t, old, "init", "-q", "--bare")
	git(t, old, "config", "pack.indexVersion", "1")
	git(t, old, "config", "repack.useDeltaBaseOffset", "false")
	os.MkdirAll(filepath.Join(old, "objects", "info"), 0o755)
	os.WriteFile(filepath.Join(old, "objects", "info", "alternates"), []byte(objects+"\n"), 0o644)
	git(t, old, "update-ref", "refs/heads/main", strings.TrimSpace(git(t, dir, "rev-parse", "HEAD")))
	git(t, old, "repack", "-q", "-a", "-d", "-f", "--depth=20")
	os.Remove(filepath.Join(old, "objects", "info", "alternates"))
	db1 := Open(filepath.Join(old, "objects"))
	defer db1.Close()
	checkAll(t, old, db1)
}

func TestConcurrentReads(t *testing.T) {
	dir := history(t)
	git(t, dir, "gc", "-q", "--prune=now")
	db := Open(filepath.Join(dir, ".git", "objects"))
	defer db.Close()
	var ids []ID
	for _, line := range strings.Fields(git(t, dir, "rev-list", "--objects", "--no-object-names", "HEAD")) {
		ids = append(ids, fromHex(t, line))
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, id := range ids {
				if _, _, err := db.Read(id); err != nil {
					t.Error(err)
				}
				if _, err := db.Size(id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestPrefixes(t *testing.T) {
	dir := history(t)
	head := fromHex(t, strings.TrimSpace(git(t, dir, "rev-parse", "HEAD")))
	for _, packed := range []bool{false, true} {
		if packed {
			git(t, dir, "gc", "-q", "--prune=now")
		}
		db := Open(filepath.Join(dir, ".git", "objects"))
		for _, n := range []int{4, 7, 20, 39, 40} {
			ids, err := db.WithPrefix(head.String()[:n])
			if err != nil || len(ids) == 0 || n > 7 && (len(ids) != 1 || ids[0] != head) {
				t.Errorf("packed %v, %d digits: %v, %v", packed, n, ids, err)
			}
		}
		if _, err := db.WithPrefix("abc"); err == nil {
			t.Error("three digits were taken")
		}
		db.Close()
	}
}

// Every byte of a small pack and of its index is damaged in turn: each object is then read right or not at all.
func TestDamageIsNeverAWrongObject(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	for i := range 3 {
		os.WriteFile(filepath.Join(dir, "f"), []byte(strings.Repeat("some text that is long enough\n", 20)+fmt.Sprint(i)), 0o644)
		git(t, dir, "add", "f")
		git(t, dir, "commit", "-q", "-m", fmt.Sprint(i))
	}
	git(t, dir, "repack", "-q", "-a", "-d", "-f")
	want := map[ID][]byte{}
	good := Open(filepath.Join(dir, ".git", "objects"))
	for _, line := range strings.Fields(git(t, dir, "rev-list", "--objects", "--no-object-names", "HEAD")) {
		id := fromHex(t, line)
		_, data, err := good.Read(id)
		if err != nil {
			t.Fatal(err)
		}
		want[id] = data
	}
	good.Close()
	packs, _ := filepath.Glob(filepath.Join(dir, ".git", "objects", "pack", "pack-*"))
	for _, path := range packs {
		if strings.HasSuffix(path, ".rev") {
			continue
		}
		os.Chmod(path, 0o644)
		orig, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		step := 1
		if testing.Short() {
			step = 7
		}
		for at := 0; at < len(orig); at += step {
			bad := bytes.Clone(orig)
			bad[at] ^= 0x41
			os.WriteFile(path, bad, 0o644)
			db := Open(filepath.Join(dir, ".git", "objects"))
			for id, data := range want {
				_, got, err := db.Read(id)
				if err == nil && !bytes.Equal(got, data) {
					t.Fatalf("%s byte %d: wrong bytes for %s", path, at, id)
				}
				var c *CorruptError
				if err != nil && !errors.As(err, &c) && !errors.Is(err, ErrNotFound) {
					t.Fatalf("%s byte %d: %T %v", path, at, err, err)
				}
				db.Size(id)
			}
			db.Close()
		}
		for _, n := range []int{0, 1, 11, 31, 100, len(orig) / 2, len(orig) - 1} {
			os.WriteFile(path, orig[:n], 0o644)
			db := Open(filepath.Join(dir, ".git", "objects"))
			for id, data := range want {
				if _, got, err := db.Read(id); err == nil && !bytes.Equal(got, data) {
					t.Fatalf("%s cut at %d: wrong bytes", path, n)
				}
			}
			db.Close()
		}
		os.WriteFile(path, orig, 0o644)
	}
}

func FuzzDelta(f *testing.F) {
	f.Add([]byte("base base base"), []byte{14, 4, 0x90, 4})
	f.Add([]byte("base"), []byte{4, 3, 3, 'a', 'b', 'c'})
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		out, err := applyDelta(base, delta)
		if err != nil {
			return
		}
		if _, size, _, _ := deltaSizes(delta); int64(len(out)) != size {
			t.Fatal("wrong size")
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add(make([]byte, fanout+idxTrailer))
	v2 := append([]byte("\xfftOc\x00\x00\x00\x02"), make([]byte, fanout+idxTrailer)...)
	f.Add(v2)
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := parseIndex("fuzz", data)
		if err != nil {
			return
		}
		for i := range min(x.n, 100) {
			x.find(ID(x.name(i)))
		}
		x.withPrefix("0000", func(ID) {})
	})
}

func FuzzEntry(f *testing.F) {
	f.Add([]byte{0xb5, 0x0a, 1, 2, 3}, int64(4096))
	f.Add([]byte{0xe5, 0x0a, 0x81, 3}, int64(4096))
	f.Fuzz(func(t *testing.T, b []byte, off int64) {
		if off < 12 {
			return
		}
		e, n, why := parseEntry(b, off)
		if why == "" && (n > len(b) || e.size < 0 || e.typ == ofsDelta && (e.base < 12 || e.base >= off)) {
			t.Fatalf("%+v %d", e, n)
		}
	})
}

func BenchmarkSize(b *testing.B) {
	dir := history(b)
	git(b, dir, "gc", "-q", "--prune=now")
	db := Open(filepath.Join(dir, ".git", "objects"))
	defer db.Close()
	var ids []ID
	for _, line := range strings.Fields(git(b, dir, "rev-list", "--objects", "--no-object-names", "HEAD")) {
		ids = append(ids, fromHex(b, line))
	}
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		if _, err := db.Size(ids[i%len(ids)]); err != nil {
			b.Fatal(err)
		}
	}
}
