package gitimport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tine/snapshot"
	"tine/snapshot/durable"
	"tine/snapshot/durable/fault"
)

// The Nth change to the store fails, for every N: the import says so or has succeeded, there is the whole checkpoint or
// none, and the next import gives the right one.
func TestEveryFailureOfTheStore(t *testing.T) {
	src := sample(t)
	want := mustImport(t, newStore(t), Request{Repo: src, Depth: 2}).ID
	for _, when := range []fault.When{fault.Before, fault.Half, fault.After} {
		tried := 0
		for n := 1; ; n++ {
			f := fault.New(durable.OS)
			dir := filepath.Join(t.TempDir(), "store")
			s, err := snapshot.Open(dir, snapshot.Options{Create: true, FS: f})
			if err != nil {
				t.Fatal(err)
			}
			f.FailAt(f.Count()+n, when, unix.ENOSPC)
			res, err := Import(context.Background(), s, Request{Repo: src, Depth: 2})
			failed := f.Failed()
			s.Close()
			f.Heal()
			where := fmt.Sprintf("change %d, %v", n, when)
			if err == nil && res.ID != want {
				t.Fatalf("%s: %s", where, res.ID)
			}
			if err != nil && !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("%s: %v", where, err)
			}
			s, err2 := snapshot.Open(dir, snapshot.Options{})
			if err2 != nil {
				t.Fatalf("%s: %v", where, err2)
			}
			list, err2 := s.List()
			if err2 != nil {
				t.Fatalf("%s: %v, then %v", where, err, err2)
			}
			for _, c := range list { // a failed sync of the directory is after the rename
				if c.ID != want {
					t.Fatalf("%s: checkpoint %s", where, c.ID)
				}
			}
			if again, err := Import(context.Background(), s, Request{Repo: src, Depth: 2}); err != nil || again.ID != want {
				t.Fatalf("%s: the next import: %v %v", where, again, err)
			}
			if n%5 == 0 {
				cleanGit(t, exported(t, s, want))
			}
			s.Close()
			if !failed {
				break
			}
			tried++
		}
		if tried < 8 {
			t.Errorf("%v: only %d changes", when, tried)
		}
	}
}

// An import that is interrupted at any stage leaves nothing that anybody sees.
func TestInterruptedImports(t *testing.T) {
	src, _ := largeSample(t)
	for stage, req := range map[string]Request{
		"trees": {}, "history": {FullHistory: true}, "sizes": {}, "large files": {}, "contents": {Eager: true},
	} {
		s := newStore(t)
		ctx, cancel := context.WithCancel(context.Background())
		req.Repo = src
		req.Progress = func(at string, _, _ int64) {
			if at == stage {
				cancel()
			}
		}
		res, err := Import(ctx, s, req)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v %v", stage, res, err)
		}
		nothingIn(t, stage, s)
		cancel()
	}
}

// Times that git allows and others stumble over: 1970, before and after what 32 bits hold.
func TestOddTimes(t *testing.T) {
	for date, want := range map[string]int64{"1 +0000": 1, "0 +0000": 0, "2147483648 +1400": 2147483648, "4294967295 +0000": 4294967295, "4294967296 -1200": 4294967296, "9999999999999 +0000": 0} {
		src := t.TempDir()
		git(t, src, "init", "-q", "-b", "main")
		write(t, src+"/f", "x", 0o644)
		git(t, src, "add", "f")
		raw := "tree " + git(t, src, "write-tree") + "\nauthor A <a@b> " + date + "\ncommitter C <c@d> " + date + "\n\nm\n"
		write(t, src+"/raw", raw, 0o644)
		id := git(t, src, "hash-object", "-w", "-t", "commit", "--literally", "raw")
		s := newStore(t)
		res := mustImport(t, s, Request{Repo: src, Rev: id})
		files, err := s.Files(res.ID)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := lookup(t, files, "f"); n.Mtime.Sec != want {
			t.Errorf("%q: %d", date, n.Mtime.Sec)
		}
		if want > 15e9 {
			continue // no file system keeps it
		}
		dir := exported(t, s, res.ID)
		if out := git(t, dir, "status", "--porcelain"); out != "" {
			t.Errorf("%q: %s", date, out)
		}
	}
}

// An index of a pack over 2 GiB has a second table; git reads it.
func TestPackIndexWithLargeOffsets(t *testing.T) {
	w := &packWriter{}
	var want []string
	for i, off := range []int64{12, 1<<31 - 1, 1 << 31, 5 << 31, 1 << 40} {
		p := packed{off: off, crc: uint32(i)}
		p.id[0], p.id[19] = byte(200-i), byte(i)
		w.items = append(w.items, p)
		want = append([]string{fmt.Sprintf("%d %s (%08x)", off, p.id, i)}, want...)
	}
	idx := filepath.Join(t.TempDir(), "idx")
	write(t, idx, string(w.index([20]byte{1})), 0o644)
	in, err := os.Open(idx)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd := exec.Command("git", "show-index", "--object-format=sha1")
	cmd.Env, cmd.Stdin = gitEnv(), in
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != strings.Join(want, "\n") {
		t.Errorf("%v:\n%s\nwant\n%s", err, out, strings.Join(want, "\n"))
	}
}
