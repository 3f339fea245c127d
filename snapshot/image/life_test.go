package image_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine/snapshot/durable"
	"tine/snapshot/durable/fault"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

// TestCloseWhileReading closes images that other goroutines read: each call is right or says that it is closed.
func TestCloseWhileReading(t *testing.T) {
	path := write(t, bigBuilder(2000))
	for range 20 {
		m := openImage(t, path, nil)
		var wg sync.WaitGroup
		for g := range uint64(3) {
			wg.Go(func() {
				for i := g; ; i++ {
					n, err := m.Node(1 + i%2000)
					if errors.Is(err, image.ErrClosed) {
						return
					}
					if err != nil || n.Ino != 1+i%2000 {
						t.Errorf("%+v, %v", n, err)
						return
					}
					if err := m.ReadDir(1, 0, func(image.Dirent) bool { return true }); err != nil && !errors.Is(err, image.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(time.Millisecond)
		m.Close()
		runtime.GC()
		wg.Wait()
	}
}

// TestMappingsAreGivenBack: neither closed nor dropped images keep their map, but a delta keeps its base's.
func TestMappingsAreGivenBack(t *testing.T) {
	tree, b := imagetest.Builder(t, sample()...)
	path := write(t, b)
	mapped := func() bool {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(maps, []byte(path))
	}
	gone := func() bool {
		for range 100 {
			runtime.GC()
			if !mapped() {
				return true
			}
			time.Sleep(10 * time.Millisecond)
		}
		return false
	}
	base := openImage(t, path, nil)
	tree.Image = base
	deltaPath := filepath.Join(t.TempDir(), "delta")
	if _, err := goldenDelta(t, tree).Write(durable.OS, deltaPath); err != nil {
		t.Fatal(err)
	}
	delta := openImage(t, deltaPath, base)
	base.Close()
	for range 3 {
		runtime.GC()
	}
	if !mapped() {
		t.Fatal("the base's map is gone while a delta needs it")
	}
	if err := walk(delta); err != nil {
		t.Fatal(err)
	}
	delta.Close()
	if !gone() {
		t.Fatal("the map of a closed image stays")
	}
	openImage(t, path, nil) // dropped
	if !gone() {
		t.Fatal("the map of a dropped image stays")
	}
}

// TestWriteFailsCleanly fails each operation of writing an image: there is none or a whole one.
func TestWriteFailsCleanly(t *testing.T) {
	for _, when := range []fault.When{fault.Before, fault.Half, fault.After} {
		for n := 1; ; n++ {
			_, b := imagetest.Builder(t, sample()...)
			path := filepath.Join(t.TempDir(), "image")
			f := fault.New(durable.OS)
			f.FailAt(n, when, unix.EIO)
			_, err := b.Write(f, path)
			if !f.Failed() {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			if !errors.Is(err, unix.EIO) {
				t.Fatalf("operation %d: %v", n, err)
			}
			m, err := image.Open(durable.OS, path, nil)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err == nil {
				err = m.Verify()
			}
			if err != nil {
				t.Fatalf("operation %d: %v", n, err)
			}
		}
	}
}
