package overlay

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A workspace that had been forked fifty times gave EIO with RLIMIT_NOFILE=64: the files of closed layers were kept open
// until none could be opened any more.
func TestDeepForksNeedFewDescriptors(t *testing.T) {
	e := newEnv(t, sampleTree())
	for i := range 60 {
		e.put(1, fmt.Sprint("level", i), fmt.Sprint("data of ", i))
		id := NewLayerID()
		v, err := e.f.Rotate(id)
		e.must(err)
		e.must(v.Close())
		e.cfg.Layers = append(e.cfg.Layers, id)
	}
	want := e.dump() // leaves as many files open as are kept

	var old unix.Rlimit
	e.must(unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	open, err := os.ReadDir("/proc/self/fd")
	e.must(err)
	few := unix.Rlimit{Cur: uint64(len(open) + 1), Max: old.Max}
	e.must(unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	if got := e.dump(); got != want {
		t.Error("differs with few descriptors")
	}
	e.must(unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
}

// With the last fork over a store nothing of the store stays open.
func TestClosingTheLastForkClosesContents(t *testing.T) {
	base := sampleTree()
	a := newEnv(t, base)
	b := newEnv(t, base)
	a.read(a.ino("a"))
	kept := func() (n int) {
		readers.mu.Lock()
		defer readers.mu.Unlock()
		for k := range readers.m {
			if k.from == base {
				n++
			}
		}
		return n
	}
	if kept() != 1 {
		t.Fatalf("%d contents kept", kept())
	}
	a.close()
	if kept() != 1 {
		t.Fatal("closed while another fork is open")
	}
	b.close()
	if kept() != 0 {
		t.Fatalf("%d contents kept without a fork", kept())
	}
}
