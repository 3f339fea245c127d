package overlay

import (
	"fmt"
	"os"
	"runtime"
	"testing"
)

func openFiles(t testing.TB) int {
	t.Helper()
	l, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestForksCostLittle: an idle fork has no descriptor and a few KiB, one that is written to two descriptors.
func TestForksCostLittle(t *testing.T) {
	base := sampleTree()
	dir := t.TempDir()
	const n = 300
	fds, mem := openFiles(t), heap()
	forks := make([]*Fork, n)
	for i := range forks {
		f, err := Open(Config{Base: base, Contents: base, LayersDir: dir, Layers: []LayerID{NewLayerID()}, ForkID: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		forks[i] = f
	}
	if used := openFiles(t) - fds; used > 2 {
		t.Errorf("%d descriptors for %d idle forks", used, n)
	}
	if each := (heap() - mem) / n; each > 8<<10 {
		t.Errorf("%d bytes of memory for an idle fork", each)
	} else {
		t.Logf("%d bytes for an idle fork", each)
	}
	for _, f := range forks[:50] {
		a, err := f.Create(root, 1, "f", 0644, true)
		if err == nil {
			_, err = f.Write(root, a.Ino, make([]byte, 100_000), 0, false)
		}
		if err == nil {
			err = f.Fsync(a.Ino, false)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if used := openFiles(t) - fds; used > 2*50+5 {
		t.Errorf("%d descriptors for 50 written forks", used)
	}
	runtime.KeepAlive(forks)
}

// TestChangedFileCostsLittleMemory: memory for a changed file doesn't grow with its contents.
func TestChangedFileCostsLittleMemory(t *testing.T) {
	e := newEnv(t, sampleTree())
	mem := heap()
	const n = 20_000
	data := make([]byte, 3000)
	for i := range n {
		a, err := e.f.Create(root, 1, fmt.Sprint("file-number-", i), 0644, true)
		if err == nil {
			_, err = e.f.Write(root, a.Ino, data, 0, false)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	each := (heap() - mem) / n
	t.Logf("%d bytes for a new file of %d bytes", each, len(data))
	if each > 900 {
		t.Errorf("%d bytes of memory for a new file", each)
	}
	runtime.KeepAlive(e)
}
