package fault_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"tine/snapshot/durable"
	"tine/snapshot/durable/fault"
)

var (
	old    = bytes.Repeat([]byte("old "), 1000)
	newer  = bytes.Repeat([]byte("new "), 2000)
	stages = []fault.When{fault.Before, fault.Half, fault.After}
)

// TestPublishingFailsCleanly fails each operation of a replacement in each way: the file is the old or the new one.
func TestPublishingFailsCleanly(t *testing.T) {
	for _, when := range stages {
		for n := 1; ; n++ {
			dir := t.TempDir()
			path := filepath.Join(dir, "f")
			if err := durable.WriteFile(durable.OS, path, old, 0o644); err != nil {
				t.Fatal(err)
			}
			f := fault.New(durable.OS)
			f.FailAt(n, when, unix.ENOSPC)
			err := durable.WriteFile(f, path, newer, 0o644)
			got, rerr := os.ReadFile(path)
			if rerr != nil || !bytes.Equal(got, old) && !bytes.Equal(got, newer) {
				t.Fatalf("operation %d: %d bytes, %v", n, len(got), rerr)
			}
			if ents, _ := os.ReadDir(dir); len(ents) != 1 {
				// Only when the file was made and the open then said that it failed is there nobody to remove it.
				if !(n == 1 && when == fault.After) {
					t.Fatalf("operation %d, stage %d: left %v", n, when, ents)
				}
			}
			if !f.Failed() {
				if err != nil || !bytes.Equal(got, newer) || n != 6 {
					t.Fatalf("without a failure, after %d operations: %v", n-1, err)
				}
				break
			}
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("operation %d: %v", n, err)
			}
		}
	}
}

// TestO3_PowerCutWhilePublishing cuts the power after each event: the file is the old or the new one, and the new one
// once WriteFile has returned.
func TestO3_PowerCutWhilePublishing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := durable.WriteFile(durable.OS, path, old, 0o644); err != nil {
		t.Fatal(err)
	}
	f := fault.New(durable.OS)
	rec, err := f.Record(dir)
	if err != nil {
		t.Fatal(err)
	}
	begin := rec.Len()
	if err := durable.WriteFile(f, path, newer, 0o644); err != nil {
		t.Fatal(err)
	}
	for n := begin; n <= rec.Len(); n++ {
		for seed := range uint64(20) {
			var rng *rand.Rand
			if seed > 0 {
				rng = rand.New(rand.NewPCG(seed, 1))
			}
			cut := filepath.Join(t.TempDir(), "cut")
			if err := rec.Cut(cut, n, rng); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(cut, "f"))
			if err != nil || !bytes.Equal(got, newer) && (!bytes.Equal(got, old) || n == rec.Len()) {
				t.Fatalf("cut after %d, seed %d: %d bytes, %v", n, seed, len(got), err)
			}
		}
	}
}

// TestPowerCutFindsMissingSyncs: the recording is no test if it lets mistakes pass.
func TestPowerCutFindsMissingSyncs(t *testing.T) {
	for name, action := range map[string]func(f *fault.FS, path string) error{
		"no datasync": func(f *fault.FS, path string) error {
			w, err := f.OpenFile(path+".tmp", os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			if _, err = w.Write(newer); err != nil {
				return err
			}
			w.Close()
			return durable.PublishFile(f, path+".tmp", path)
		},
		"no directory sync": func(f *fault.FS, path string) error {
			w, err := f.OpenFile(path+".tmp", os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			if _, err = w.Write(newer); err != nil {
				return err
			}
			if err := w.Datasync(); err != nil {
				return err
			}
			w.Close()
			return f.Rename(path+".tmp", path)
		},
	} {
		dir := t.TempDir()
		f := fault.New(durable.OS)
		rec, err := f.Record(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := action(f, filepath.Join(dir, "f")); err != nil {
			t.Fatal(err)
		}
		cut := filepath.Join(t.TempDir(), "cut")
		if err := rec.Cut(cut, rec.Len(), nil); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(cut, "f")); err == nil && bytes.Equal(got, newer) {
			t.Errorf("%s: nothing was lost", name)
		}
	}
}

// TestRecordingEqualsTheTree does every operation and compares the uncut recording with the directory.
func TestRecordingEqualsTheTree(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "before"), []byte("was here"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := fault.New(durable.OS)
	rec, err := f.Record(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := func(s string) string { return filepath.Join(dir, s) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(f.MkdirAll(p("a/b"), 0o755))
	check(f.Mkdir(p("c"), 0o700))
	w, err := f.OpenFile(p("a/b/f"), os.O_CREATE|os.O_RDWR, 0o644)
	check(err)
	for i := range 5 {
		_, err = fmt.Fprintf(w, "line %d\n", i)
		check(err)
	}
	_, err = w.WriteAt([]byte("far"), 9000)
	check(err)
	check(w.Truncate(9002))
	check(w.PunchHole(0, 7))
	check(w.Allocate(0, 10000))
	check(f.Rename(p("a/b"), p("c/d")))
	_, err = w.WriteAt([]byte("renamed"), 100)
	check(err)
	check(w.Sync())
	check(w.Close())
	w, err = f.OpenFile(p("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(err)
	for range 3 {
		_, err = w.Write([]byte("append;"))
		check(err)
	}
	check(w.Datasync())
	check(w.Close())
	check(f.Link(p("log"), p("log2")))
	check(f.Symlink("log", p("sym")))
	check(f.Chmod(p("log"), 0o400))
	check(f.Remove(p("before")))
	if err := durable.WriteFile(f, p("gone/x"), nil, 0o644); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, d := range []string{"", "a", "c", "c/d"} {
		check(f.SyncDir(p(d)))
	}
	cut := filepath.Join(t.TempDir(), "cut")
	check(rec.Cut(cut, rec.Len(), nil))
	compare(t, dir, cut)
}

func compare(t *testing.T, want, got string) {
	t.Helper()
	list := func(root string) map[string]string {
		all := map[string]string{}
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			rel, _ := filepath.Rel(root, path)
			s := info.Mode().String()
			if rel == "." {
				s = "root"
			}
			if d.Type().IsRegular() {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				s += fmt.Sprintf(" %q", data)
			}
			all[rel] = s
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	a, b := list(want), list(got)
	for k := range a {
		if a[k] != b[k] {
			t.Errorf("%s: %.80s, want %.80s", k, b[k], a[k])
		}
	}
	if len(a) != len(b) {
		t.Errorf("%d paths, want %d", len(b), len(a))
	}
}
