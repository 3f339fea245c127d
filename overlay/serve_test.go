package overlay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine/overlay/journal"
)

// TestMain can also be the other process of TestTwoServersForOneFork.
func TestMain(m *testing.M) {
	if dir := os.Getenv("TINE_TEST_HOLD"); dir != "" {
		id, _ := journal.ParseLayerID(os.Getenv("TINE_TEST_LAYER"))
		base := sampleTree()
		if _, err := Open(Config{Base: base, Contents: base, LayersDir: dir, Layers: []LayerID{id}, ForkID: "fork", BaseID: "base"}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("holding")
		bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestTwoServersForOneFork(t *testing.T) {
	e := newEnv(t, sampleTree())
	var served *ServedError
	if _, err := Open(e.cfg); !errors.As(err, &served) || served.PID != os.Getpid() || Errno(err) != unix.EBUSY {
		t.Fatalf("second in this process: %v", err)
	}
	if f, err := Open(e.cfg); err == nil {
		f.Close()
		t.Fatal("opened twice")
	}
	e.close()

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TINE_TEST_HOLD="+e.cfg.LayersDir, "TINE_TEST_LAYER="+e.cfg.Layers[0].String())
	in, err := cmd.StdinPipe()
	e.must(err)
	out, err := cmd.StdoutPipe()
	e.must(err)
	e.must(cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "holding\n" {
		t.Fatal(line)
	}
	for _, ro := range []bool{false, true} {
		e.cfg.ReadOnly = ro
		if _, err := Open(e.cfg); !errors.As(err, &served) || served.PID != cmd.Process.Pid {
			t.Fatalf("other process %d: %v", cmd.Process.Pid, err)
		}
	}
	in.Close()
	// It is just going away: waited for.
	e.cfg.ReadOnly = true
	e.open()
	f, err := Open(e.cfg)
	e.must(err)
	e.must(f.Close())
	_, err = e.f.Create(root, 1, "x", 0644, true)
	e.wantErr(err, unix.EROFS)
	if ents, _ := os.ReadDir(e.cfg.LayersDir); len(ents) != 1 || ents[0].Name() != "lock" {
		t.Fatalf("made by reading: %v", ents)
	}
}

func TestFilesAreMadeByTheFirstWriteOnly(t *testing.T) {
	e := newEnv(t, sampleTree())
	e.dump()
	e.must(e.f.Fsync(1, false))
	if _, err := os.Stat(filepath.Join(e.cfg.LayersDir, e.cfg.Layers[0].String())); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("layer: %v", err)
	}
	e.put(1, "x", "small")
	ents, err := os.ReadDir(filepath.Join(e.cfg.LayersDir, e.cfg.Layers[0].String()))
	e.must(err)
	if len(ents) != 1 || ents[0].Name() != "journal" {
		t.Fatalf("%v", ents)
	}
}

// TestResentRequestsAreDoneOnce is what a takeover relies on.
func TestResentRequestsAreDoneOnce(t *testing.T) {
	e := newEnv(t, sampleTree())
	n := uint64(0)
	req := func() Caller {
		n += 2
		return Caller{Conn: [16]byte{1}, Unique: n}
	}
	again := func(c Caller) Caller { c.Resent = true; return c }
	mk, ln, un, rm, mv, cp := req(), req(), req(), req(), req(), req()
	d, err := e.f.Mkdir(mk, 1, "d", 0755)
	e.must(err)
	ino := e.ino("a")
	_, err = e.f.Link(ln, ino, 1, "a2")
	e.must(err)
	e.must(e.f.Unlink(un, 1, "empty"))
	e.must(e.f.Rmdir(rm, 1, "emptydir"))
	e.must(e.f.Rename(mv, 1, "hard1", 1, "big", unix.RENAME_EXCHANGE))
	got, err := e.f.CopyRange(cp, ino, 0, e.put(1, "copy", ""), 0, 5)
	e.must(err)
	want := e.dump()
	for i := range 3 {
		a, err := e.f.Mkdir(again(mk), 1, "d", 0755)
		e.must(err)
		if a.Ino != d.Ino {
			t.Fatalf("mkdir answered %d, first %d", a.Ino, d.Ino)
		}
		_, err = e.f.Link(again(ln), ino, 1, "a2")
		e.must(err)
		e.must(e.f.Unlink(again(un), 1, "empty"))
		e.must(e.f.Rmdir(again(rm), 1, "emptydir"))
		e.must(e.f.Rename(again(mv), 1, "hard1", 1, "big", unix.RENAME_EXCHANGE))
		if k, err := e.f.CopyRange(again(cp), ino, 0, e.ino("copy"), 0, 5); k != got || err != nil {
			t.Fatalf("copied %d, %v", k, err)
		}
		if e.dump() != want {
			t.Fatal("done twice")
		}
		if i == 0 {
			e.reopen()
		}
	}
	// Another connection's requests have nothing to do with these, nor have requests that aren't resent.
	other := again(mk)
	other.Conn = [16]byte{2}
	_, err = e.f.Mkdir(other, 1, "d", 0755)
	e.wantErr(err, unix.EEXIST)
	_, err = e.f.Mkdir(mk, 1, "d", 0755)
	e.wantErr(err, unix.EEXIST)
	// One that never arrived is done now.
	_, err = e.f.Mkdir(again(req()), 1, "new", 0755)
	e.must(err)
}

func TestBarrierParksChangesAndNotReads(t *testing.T) {
	e := newEnv(t, sampleTree())
	e.must(e.f.Park(context.Background()))
	e.must(e.f.Park(context.Background()))
	count := e.f.ChangeCounter()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { e.put(1, fmt.Sprint("f", i), "x") })
	}
	wg.Go(func() { e.f.Write(root, e.ino("a"), make([]byte, 100_000), 0, false) })
	time.Sleep(20 * time.Millisecond)
	e.read(e.ino("a"))
	e.f.Unpark()
	time.Sleep(5 * time.Millisecond)
	if e.f.ChangeCounter() != count {
		t.Fatal("changed while parked")
	}
	e.f.Unpark()
	wg.Wait()
	if len(e.names(1)) != len(e.base.entries[1])+4 {
		t.Fatalf("%v", e.names(1))
	}
	// A park that gives up leaves nothing parked.
	e.f.gate.enter()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := e.f.Park(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	e.f.gate.leave()
	e.put(1, "after", "")
}

func TestS4_TransactionIsSeenWholeOrNotAtAll(t *testing.T) {
	e := newEnv(t, sampleTree())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			v, err := e.f.View()
			if err != nil {
				t.Error(err)
				return
			}
			n := 0
			v.ReadDir(1, 0, func(d Dirent) bool {
				if strings.HasPrefix(d.Name, "tx") {
					n++
				}
				return true
			})
			v.Close()
			if n != 0 && n != 50 {
				t.Errorf("%d of 50 names of a transaction", n)
				return
			}
			e.f.Fsync(1, false)
		}
	})
	var events []Event
	e.f.OnInvalidate(func(ev Event) { events = append(events, ev) })
	err := e.f.Txn(func(tx *Tx) error {
		for i := range 50 {
			a, err := tx.Create(root, 1, fmt.Sprint("tx", i), 0644, true)
			if err != nil {
				return err
			}
			if _, err := tx.Write(root, a.Ino, make([]byte, 1000*i+1), 0); err != nil {
				return err
			}
			if _, err := e.f.Lookup(1, fmt.Sprint("tx", i)); Errno(err) != unix.ENOENT {
				return fmt.Errorf("visible before the end: %v", err)
			}
			if b, err := tx.Lookup(1, fmt.Sprint("tx", i)); err != nil || b.Size != int64(1000*i+1) {
				return fmt.Errorf("not visible inside: %+v, %v", b, err)
			}
		}
		return nil
	})
	e.must(err)
	close(stop)
	wg.Wait()
	e.f.FlushEvents()
	if len(events) != 100 {
		t.Fatalf("%d events", len(events))
	}
	// A crash before the end of one takes all of it.
	want := e.dump()
	e.must(e.f.Fsync(1, false))
	e.f.Txn(func(tx *Tx) error {
		tx.Unlink(root, 1, "a")
		tx.Mkdir(root, 1, "never", 0755)
		crash := t.TempDir()
		copyLayers(t, e.cfg.LayersDir, crash)
		c := &env{t: t, base: e.base, cfg: e.cfg}
		c.cfg.LayersDir = crash
		c.open()
		if got := c.dump(); got != want {
			t.Errorf("half a transaction:\n%s\nwant\n%s", got, want)
		}
		c.put(1, "x", "")
		c.reopen()
		c.close()
		return errors.New("undo")
	})
	if e.dump() != want {
		t.Fatal("undone transaction left something")
	}
}

func TestEventsTellChangesBehindTheKernel(t *testing.T) {
	e := newEnv(t, sampleTree())
	var mu sync.Mutex
	var got []Event
	e.f.OnInvalidate(func(ev Event) { mu.Lock(); got = append(got, ev); mu.Unlock() })
	kernel := Caller{Conn: [16]byte{1}}
	_, err := e.f.Mkdir(kernel, 1, "k", 0755)
	e.must(err)
	ino := e.put(1, "h", "x")
	e.must(e.f.Rename(root, 1, "h", 1, "i", 0))
	e.must(e.f.Unlink(root, 1, "i"))
	e.f.FlushEvents()
	want := []Event{{Dir: 1, Name: "h"}, {Ino: ino}, {Dir: 1, Name: "h"}, {Dir: 1, Name: "i"}, {Ino: ino}, {Dir: 1, Name: "i"}}
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %v want %v", got, want)
	}
}

func TestDamageIsReportedNeverSkipped(t *testing.T) {
	e := newEnv(t, sampleTree())
	for i := range 20 {
		e.put(1, fmt.Sprint("f", i), strings.Repeat("data", 100))
	}
	e.close()
	path := filepath.Join(e.cfg.LayersDir, e.cfg.Layers[0].String(), "journal")
	good, err := os.ReadFile(path)
	e.must(err)
	used := len(good)
	for used > 0 && good[used-1] == 0 {
		used--
	}
	flip := func(at int, boot byte) error {
		bad := append([]byte(nil), good...)
		bad[at] ^= 0x40
		e.must(os.WriteFile(path, bad, 0o644))
		c := e.cfg
		if boot != 0 {
			c.BootID = [16]byte{boot}
		}
		f, err := Open(c)
		if err == nil {
			f.Close()
		}
		return err
	}
	for at := 16; at < used-500; at += 97 {
		err := flip(at, 0)
		if at >= 16 && at < 32 && errors.As(err, new(*BaseError)) {
			continue
		}
		if !errors.As(err, new(*CorruptError)) && !errors.As(err, new(*BaseError)) {
			t.Fatalf("bit flipped at %d: %v", at, err)
		}
	}
	// After another boot an unsynced end may be anything; what a sync mark promised may not.
	if err := flip(used-700, 9); err != nil {
		t.Fatalf("unsynced and damaged after a power cut: %v", err)
	}
	e.must(os.WriteFile(path, good, 0o644))
	e.open()
	e.must(e.f.Fsync(1, false))
	e.put(1, "more", "")
	e.must(e.f.Fsync(1, false))
	e.put(1, "and more", "")
	e.close()
	good, err = os.ReadFile(path)
	e.must(err)
	if err := flip(2000, 9); !errors.As(err, new(*CorruptError)) {
		t.Fatalf("synced and damaged: %v", err)
	}
	bad := append([]byte(nil), good...)
	bad[8] = 99
	e.must(os.WriteFile(path, bad, 0o644))
	if _, err := Open(e.cfg); !errors.As(err, new(*journal.VersionError)) {
		t.Fatalf("newer version: %v", err)
	}
	// A journal copied into the fork as a file's content never counts as records.
	e.must(os.WriteFile(path, good, 0o644))
	e.open()
	e.put(1, "journal", string(good[:15_000]))
	e.close()
	torn, err := os.ReadFile(path)
	e.must(err)
	cut := len(torn)
	for torn[cut-1] == 0 {
		cut--
	}
	e.must(os.WriteFile(path, torn[:cut-100], 0o644))
	e.open()
	if _, err := e.lookup("journal"); err == nil && e.read(e.ino("journal")) != "" {
		t.Fatal("torn record counted")
	}
}

func TestOpenedWithAnotherBaseOrForkIsRefused(t *testing.T) {
	e := newEnv(t, sampleTree())
	e.put(1, "x", "")
	e.close()
	for _, c := range []Config{
		func() Config { c := e.cfg; c.BaseID = "other"; return c }(),
		func() Config { c := e.cfg; c.ForkID = "other"; return c }(),
		func() Config { c := e.cfg; c.Layers = append([]LayerID{NewLayerID()}, c.Layers...); return c }(),
	} {
		if _, err := Open(c); !errors.As(err, new(*BaseError)) {
			t.Fatalf("%v", err)
		}
	}
}

// TestConcurrentUse is for the race detector.
func TestConcurrentUse(t *testing.T) {
	e := newEnv(t, sampleTree())
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			name := fmt.Sprint("g", g)
			a, err := e.f.Create(root, 1, name, 0644, true)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 60 {
				e.f.Write(root, a.Ino, make([]byte, i*1000+1), int64(i*100), false)
				e.f.Read(a.Ino, make([]byte, 10_000), int64(i*50))
				e.f.Lookup(1, name)
				e.f.ReadDir(1, 0, func(d Dirent, attr func() (Attr, bool)) bool { attr(); return true })
				e.f.Rename(root, 1, name, 1, name+"x", unix.RENAME_NOREPLACE)
				e.f.Rename(root, 1, name+"x", 1, name, 0)
				switch i % 10 {
				case 0:
					e.f.Fsync(1, false)
				case 3:
					if v, err := e.f.Rotate(NewLayerID()); err == nil {
						n, _ := v.Node(a.Ino)
						if r, err := v.OpenFile(n); err == nil {
							r.ReadAt(make([]byte, 1000), 0)
							r.Close()
						}
						v.Close()
					}
				case 6:
					e.f.Txn(func(tx *Tx) error { _, err := tx.Mkdir(root, 1, fmt.Sprint(name, i), 0755); return err })
				case 8:
					e.f.reclaim()
				}
			}
		})
	}
	wg.Wait()
}
