package fs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tine/fs"
	"tine/snapshot/image/imagetest"
)

// BenchmarkAgainstKernel compares a mounted fork with ext4 and with kernel overlayfs, in one run, each operation
// done by a process of its own that only makes system calls. Subtests: operation/file system.
func BenchmarkAgainstKernel(b *testing.B) {
	const dirs, files = 40, 50
	var entries []imagetest.Entry
	data := strings.Repeat("x", 4096)
	for d := range dirs {
		for f := range files {
			entries = append(entries, imagetest.File(fmt.Sprintf("tree/d%d/f%d", d, f), data, 0644))
		}
	}
	ext4 := b.TempDir()
	for _, e := range entries {
		p := filepath.Join(ext4, e.Path)
		os.MkdirAll(filepath.Dir(p), 0755)
		if err := os.WriteFile(p, []byte(e.Data), 0644); err != nil {
			b.Fatal(err)
		}
	}
	fork := newFork(b, entries...)
	tine, w := mount(b, newServer(b), fork.fork, fs.MountOptions{})
	over := b.TempDir()
	upper, work := b.TempDir(), b.TempDir()
	err := unix.Mount("overlay", over, "overlay", 0, "lowerdir="+ext4+",upperdir="+upper+",workdir="+work)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Unmount(over, unix.MNT_DETACH)
	targets := []struct{ name, dir string }{{"ext4", ext4}, {"overlayfs", over}, {"tine", tine}}
	for _, op := range clientOps {
		for _, t := range targets {
			b.Run(op.name+"/"+t.name, func(b *testing.B) {
				before := w.Conn.Requests()
				ns := runClient(b, op.name, t.dir, b.N)
				b.ReportMetric(ns, "ns/op")
				if t.name == "tine" && b.N > 1000 {
					for name, n := range w.Conn.Requests() {
						if r := float64(n-before[name]) / float64(b.N); r > 0.05 {
							b.ReportMetric(r, strings.ToLower(name)+"/op")
						}
					}
				}
			})
		}
	}
}

// clientOps are loops of n operations in a directory; prepare runs before the clock starts.
var clientOps = []struct {
	name string
	run  func(dir string, n int) (time.Duration, error)
}{
	{"open-read-close", func(dir string, n int) (time.Duration, error) {
		paths := treeFiles(dir)
		buf := make([]byte, 8192)
		pass := func(n int) error {
			for i := range n {
				fd, err := unix.Open(paths[i%len(paths)], unix.O_RDONLY, 0)
				if err != nil {
					return err
				}
				if n, err := unix.Read(fd, buf); n != 4096 || err != nil {
					return fmt.Errorf("read: %d, %v", n, err)
				}
				unix.Close(fd)
			}
			return nil
		}
		if err := pass(len(paths)); err != nil {
			return 0, err
		}
		start := time.Now()
		err := pass(n)
		return time.Since(start), err
	}},
	{"find-stat", func(dir string, n int) (time.Duration, error) { // per entry
		var st unix.Stat_t
		pass := func() (int, error) {
			count := 0
			for d := range 40 {
				sub := filepath.Join(dir, "tree", "d"+strconv.Itoa(d))
				names, err := listNames(sub)
				if err != nil {
					return 0, err
				}
				for _, name := range names {
					if err := unix.Lstat(sub+"/"+name, &st); err != nil {
						return 0, err
					}
				}
				count += len(names)
			}
			return count, nil
		}
		for range 2 {
			if _, err := pass(); err != nil {
				return 0, err
			}
		}
		start := time.Now()
		for done := 0; done < n; {
			c, err := pass()
			if err != nil {
				return 0, err
			}
			done += c
		}
		d := time.Since(start)
		if n < 2000 { // one pass is more than was asked for
			d = d * time.Duration(n) / 2000
		}
		return d, nil
	}},
	{"create-write-close", func(dir string, n int) (time.Duration, error) {
		data := make([]byte, 4096)
		sub, err := os.MkdirTemp(dir, "new")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(sub)
		start := time.Now()
		for i := range n {
			fd, err := unix.Open(sub+"/f"+strconv.Itoa(i), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0644)
			if err != nil {
				return 0, err
			}
			if _, err := unix.Write(fd, data); err != nil {
				return 0, err
			}
			unix.Close(fd)
		}
		return time.Since(start), nil
	}},
	{"getattr", func(dir string, n int) (time.Duration, error) {
		// Forced to the server where there is one.
		fd, err := unix.Open(dir+"/tree/d0/f0", unix.O_RDONLY, 0)
		if err != nil {
			return 0, err
		}
		defer unix.Close(fd)
		var st unix.Statx_t
		start := time.Now()
		for range n {
			if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}},
	{"mkdir-rmdir", func(dir string, n int) (time.Duration, error) {
		p := dir + "/tree/d0/sub"
		start := time.Now()
		for range n {
			if err := unix.Mkdir(p, 0755); err != nil {
				return 0, err
			}
			if err := unix.Rmdir(p); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}},
	{"rename", func(dir string, n int) (time.Duration, error) {
		a, b := dir+"/tree/ren-a", dir+"/tree/ren-b"
		if err := os.WriteFile(a, nil, 0644); err != nil {
			return 0, err
		}
		start := time.Now()
		for range n {
			if err := unix.Rename(a, b); err != nil {
				return 0, err
			}
			a, b = b, a
		}
		d := time.Since(start)
		return d, unix.Unlink(a)
	}},
	{"fsync-clean", func(dir string, n int) (time.Duration, error) {
		fd, err := unix.Open(dir+"/tree/d0/f0", unix.O_RDONLY, 0)
		if err != nil {
			return 0, err
		}
		defer unix.Close(fd)
		start := time.Now()
		for range n {
			if err := unix.Fsync(fd); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}},
	{"overwrite-4k", func(dir string, n int) (time.Duration, error) {
		data := make([]byte, 4096)
		fd, err := unix.Open(dir+"/tree/over", unix.O_CREAT|unix.O_WRONLY, 0644)
		if err != nil {
			return 0, err
		}
		defer unix.Unlink(dir + "/tree/over")
		defer unix.Close(fd)
		start := time.Now()
		for range n {
			if _, err := unix.Pwrite(fd, data, 0); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}},
}

func treeFiles(dir string) []string {
	var p []string
	for d := range 40 {
		for f := range 50 {
			p = append(p, fmt.Sprintf("%s/tree/d%d/f%d", dir, d, f))
		}
	}
	return p
}

// listNames reads a directory with getdents.
func listNames(dir string) ([]string, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 32<<10)
	var names []string
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return names, nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}

// runClient does n operations in a process of its own and returns nanoseconds for each.
func runClient(b *testing.B, op, dir string, n int) float64 {
	cmd := exec.Command("/proc/self/exe", op, dir, strconv.Itoa(n))
	cmd.Env = append(os.Environ(), childEnv+"=bench", "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%s in %s: %v", op, dir, err)
	}
	ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		b.Fatal(err)
	}
	return ns / float64(n)
}

func init() {
	children["bench"] = func(args []string) error {
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		for _, op := range clientOps {
			if op.name == args[0] {
				d, err := op.run(args[1], n)
				fmt.Println(d.Nanoseconds())
				return err
			}
		}
		return fmt.Errorf("no operation %s", args[0])
	}
}
