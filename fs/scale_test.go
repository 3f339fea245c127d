package fs_test

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine/fs"
	"tine/overlay"
	"tine/snapshot/image/imagetest"
)

// Idle mounts cost no thread, no goroutine and little memory. TINE_FS_MOUNTS sets how many are made.
func TestIdleMountsAreSmall(t *testing.T) {
	n := 200
	if s := os.Getenv("TINE_FS_MOUNTS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	base := imagetest.Build(t, imagetest.File("d/a", "x", 0644))
	s := newServer(t)
	dir := t.TempDir()
	runtime.GC()
	threads, goroutines, rss := status(t, "Threads:"), runtime.NumGoroutine(), status(t, "VmRSS:")
	start := time.Now()
	for i := range n {
		fork, err := overlay.Open(overlay.Config{
			Base: base.Image, Contents: base.Contents, LayersDir: dir, Layers: []overlay.LayerID{overlay.NewLayerID()},
			ForkID: "f" + strconv.Itoa(i), BaseID: "b",
		})
		if err != nil {
			t.Fatal(err)
		}
		w, err := s.Mount(context.Background(), fork, fs.MountOptions{}, fs.ConnOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { w.Close(); fork.Close() }()
		var st unix.Stat_t
		if err := unix.Fstatat(w.FD(), "d/a", &st, 0); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(start)
	runtime.GC()
	grown := (status(t, "VmRSS:") - rss) / n
	t.Logf("%d mounts: %v, %d KiB each, %d threads and %d goroutines more", n, took/time.Duration(n), grown,
		status(t, "Threads:")-threads, runtime.NumGoroutine()-goroutines)
	if g := runtime.NumGoroutine() - goroutines; g > 10 {
		t.Errorf("%d goroutines more", g)
	}
	if th := status(t, "Threads:") - threads; th > 20 {
		t.Errorf("%d threads more", th)
	}
	if n >= 200 && grown > 48 && !raced {
		t.Errorf("%d KiB a mount", grown)
	}
}

// status is a number in /proc/self/status.
func status(t *testing.T, key string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\n"+key)
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
