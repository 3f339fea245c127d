package overlay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFullDisk fills a small file system (tmpfs) through a fork: ENOSPC and nothing else, deleting works and gives
// the room back, and everything that was acknowledged is there after reopening.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tine-test", dir, "tmpfs", 0, "size=3m,mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	for _, size := range []int{500, 4096, 16 << 10, 100_000, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			e := newEnv(t, sampleTree())
			e.close()
			e.cfg.LayersDir = dir
			e.open()
			d := newDriver(e, 1)
			r := rand.New(rand.NewPCG(1, 2))
			var files []string
			fill := func() int {
				n := 0
				for {
					name := fmt.Sprint("file", len(files))
					a, err := e.f.Create(root, 1, name, 0644, true)
					if err == nil {
						files = append(files, name)
						d.m.add(1, name, a.Ino, unix.S_IFREG|0644, "")
						b := d.bytes(size)
						if _, err = e.f.Write(root, a.Ino, b, 0, false); err == nil {
							d.m.write(a.Ino, b, 0)
							n += size
						}
					}
					if err != nil {
						if !errors.Is(err, unix.ENOSPC) {
							t.Fatal(err)
						}
						return n
					}
				}
			}
			first := fill()
			d.compare()
			for len(files) > 0 {
				i := r.IntN(len(files))
				ino := e.ino(files[i])
				e.must(e.f.Unlink(root, 1, files[i]))
				d.m.unlink(1, files[i])
				e.f.Forget(ino)
				files = append(files[:i], files[i+1:]...)
				if len(files) == 7 {
					d.compare()
				}
			}
			d.reopenSame()
			second := fill()
			if second < first/2 {
				t.Errorf("%d bytes fit the first time, %d after deleting all", first, second)
			}
			t.Logf("%d bytes, then %d", first, second)
			d.compare()
			e.close()
			e.must(os.RemoveAll(dir + "/" + e.cfg.Layers[0].String()))
			e.open()
		})
	}
}
