package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tine/snapshot/content"
	"tine/snapshot/durable"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

// childEnv makes the test binary a process that uses a store: "ROLE DIR SEED".
const childEnv = "TINE_TEST_STORE_CHILD"

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		w := strings.Fields(spec)
		seed, _ := strconv.Atoi(w[2])
		if err := child(w[0], w[1], seed); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// shared is what all children put, own is a child's alone.
func sharedData(i int) []byte { return pattern(uint64(1000+i), 500+i*37) }
func ownData(seed, i int) []byte {
	return pattern(uint64(5000+seed*100+i), 300+i*11)
}

func child(role, dir string, seed int) error {
	segmentLimit = 64 << 10 // several segments
	s, err := Open(dir, Options{Create: true})
	if err != nil {
		return err
	}
	ctx := context.Background()
	for round := 0; ; round++ {
		h, err := s.Shared(ctx)
		if err != nil {
			return err
		}
		b := []imagetest.Entry{}
		for i := range 10 {
			b = append(b, imagetest.File(fmt.Sprint("s", i), string(sharedData(i)), 0o644))
			b = append(b, imagetest.File(fmt.Sprint("o", i), string(ownData(seed, round*10+i)), 0o644))
		}
		b = append(b, imagetest.File("object", string(pattern(uint64(seed), inlineLimit+1)), 0o644))
		for _, e := range b {
			if _, err := s.Put([]byte(e.Data), content.SHA1); err != nil {
				return err
			}
		}
		_, ib := imagetest.Builder(childTB{}, b...)
		enc, err := ib.Encode()
		if err != nil {
			return err
		}
		c, err := s.Publish(ctx, Draft{Image: enc, Provenance: Provenance{Kind: "test", Source: fmt.Sprint(seed)}})
		if err != nil {
			return err
		}
		if err := h.Release(); err != nil {
			return err
		}
		fmt.Println("published", c.ID) // acknowledged: it must be there, whatever comes
		if role == "once" && round == 5 {
			return s.Close()
		}
	}
}

// childTB lets imagetest be used outside of a test.
type childTB struct{ testing.TB }

func (childTB) Helper()               {}
func (childTB) Fatalf(string, ...any) { panic("imagetest") }
func (childTB) Fatal(...any)          { panic("imagetest") }

func startChild(t *testing.T, role, dir string, seed int) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", childEnv, role, dir, seed))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, bufio.NewScanner(out)
}

// collect reads the ids that a child acknowledges until it ends.
func collect(sc *bufio.Scanner) (ids []string, other string) {
	for sc.Scan() {
		if id, ok := strings.CutPrefix(sc.Text(), "published "); ok {
			ids = append(ids, id)
		} else {
			other += sc.Text() + "\n"
		}
	}
	return ids, other
}

func whole(t *testing.T, s *Store, id string) {
	t.Helper()
	f, err := s.Files(id)
	if err != nil {
		t.Fatal(err)
	}
	var inos []uint64
	f.ReadDir(1, 0, func(d image.Dirent) bool { inos = append(inos, d.Ino); return true })
	if len(inos) != 21 {
		t.Fatalf("%d files", len(inos))
	}
	for _, ino := range inos {
		n, err := f.Node(ino)
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.OpenFile(n)
		if err != nil {
			t.Fatal(err)
		}
		b, err := content.ReadAll(r, 1<<20)
		if err != nil || content.Verify(n.Content, b) != nil {
			t.Fatal(err)
		}
		r.Close()
	}
}

// Three processes and this one publish into one store at once; each reads what the others have published.
func TestProcessesShareAStore(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "store")
	var scans []*bufio.Scanner
	var cmds []*exec.Cmd
	for seed := range 3 {
		cmd, sc := startChild(t, "once", dir, seed)
		cmds, scans = append(cmds, cmd), append(scans, sc)
	}
	var s *Store
	for try := 0; s == nil; try++ {
		var err error
		if s, err = Open(dir, Options{Create: true}); err != nil && try > 100 {
			t.Fatal(err)
		}
	}
	defer s.Close()
	for i := range scans {
		for scans[i].Scan() {
			id, ok := strings.CutPrefix(scans[i].Text(), "published ")
			if !ok {
				t.Fatal(scans[i].Text())
			}
			whole(t, s, id)
		}
	}
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if list, err := s.List(); err != nil || len(list) != 18 {
		t.Fatal(len(list), err)
	}
	if _, problems := checked(t, s, CheckOptions{Full: true}); len(problems) > 0 {
		t.Fatal(problems)
	}
	segs, _ := filepath.Glob(filepath.Join(dir, "segments", "*.seg"))
	idx, _ := filepath.Glob(filepath.Join(dir, "segments", "*.idx"))
	if len(segs) < 3 || len(idx) > len(segs)*mergeAt {
		t.Errorf("%d segments with %d indexes", len(segs), len(idx))
	}
}

// kill -9 while processes publish: what was acknowledged is there, and the store goes on.
func TestO3_KilledWhilePublishing(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "store")
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	acknowledged := map[string]bool{}
	for round := range rounds {
		a, sa := startChild(t, "forever", dir, 10+round*2)
		b, sb := startChild(t, "forever", dir, 11+round*2)
		time.AfterFunc(time.Duration(20+round*17)*time.Millisecond, func() { a.Process.Kill() })
		time.AfterFunc(time.Duration(30+round*13)*time.Millisecond, func() { b.Process.Kill() })
		for _, sc := range []*bufio.Scanner{sa, sb} {
			ids, other := collect(sc)
			if other != "" {
				t.Fatal(other)
			}
			for _, id := range ids {
				acknowledged[id] = true
			}
		}
		a.Wait()
		b.Wait()
	}
	s := openStore(t, dir, Options{Create: true})
	for id := range acknowledged {
		whole(t, s, id)
	}
	list, err := s.List()
	if err != nil || len(list) < len(acknowledged) {
		t.Fatal(len(list), len(acknowledged), err)
	}
	for _, c := range list {
		whole(t, s, c.ID)
	}
	t.Logf("%d checkpoints, %d of them acknowledged", len(list), len(acknowledged))
	if _, problems := checked(t, s, CheckOptions{Full: true}); len(problems) > 0 {
		t.Fatal(problems)
	}
}

func TestSweepExcludesPublishers(t *testing.T) {
	s := newStore(t)
	other := openStore(t, s.Dir(), Options{})
	h, err := other.Shared(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	var locked *durable.LockedError
	if _, err := s.Exclusive(ctx); err == nil || !errors.As(err, &locked) {
		t.Fatal(err)
	}
	h.Release()
	x, err := s.Exclusive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := other.Shared(ctx); err == nil {
		t.Fatal("shared beside exclusive")
	}
	x.Release()
	if h, err = other.Shared(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Release()
}
