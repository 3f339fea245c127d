package fs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tine/overlay"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

// CASES 44: a file that is open and has no name any more lives on, and ends with its last descriptor.
func TestCase44_UnlinkedOpen(t *testing.T) {
	dir, _, f := workspace(t, imagetest.File("base", "from the base", 0644))
	var fds []int
	for i, name := range []string{"base", "new"} {
		fd, err := unix.Open(dir+"/"+name, unix.O_CREAT|unix.O_RDWR, 0644)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
		if err := unix.Unlink(dir + "/" + name); err != nil {
			t.Fatal(err)
		}
		data := []byte(fmt.Sprintf("written later %d", i))
		if _, err := unix.Pwrite(fd, data, 100); err != nil {
			t.Fatal(err)
		}
		if err := unix.Fsync(fd); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 200)
		if n, err := unix.Pread(fd, buf, 100); err != nil || !bytes.Equal(buf[:n], data) {
			t.Errorf("%s: %q, %v", name, buf[:n], err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Nlink != 0 || st.Size != 100+int64(len(data)) {
			t.Errorf("%s: %d links, %d bytes, %v", name, st.Nlink, st.Size, err)
		}
		if err := unix.Fchmod(fd, 0600); err != nil {
			t.Error(err)
		}
	}
	if names := readNames(t, dir); len(names) != 0 {
		t.Errorf("left over: %v", names)
	}
	if n := len(f.fork.Orphans()); n != 2 {
		t.Errorf("%d orphans, want 2", n)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	orphansEnd(t, f)
}

// orphansEnd waits for it. The engine notes an end in the record of the next change.
func orphansEnd(t *testing.T, f *fixture) {
	t.Helper()
	within(t, 5*time.Second, "the orphans end", func() bool {
		touch := overlay.SetAttr{Valid: overlay.SetMtimeNow}
		if _, err := f.fork.Setattr(overlay.Caller{}, image.Root, touch); err != nil {
			t.Fatal(err)
		}
		return len(f.fork.Orphans()) == 0
	})
}

// A directory that is somebody's current directory can be removed, and ends when it is left.
func TestRemovedDirectoryInUse(t *testing.T) {
	dir, _, f := workspace(t, imagetest.Dir("d", 0755))
	fd, err := unix.Open(dir+"/d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Rmdir(dir + "/d"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkdirat(fd, "x", 0755); err != unix.ENOENT {
		t.Errorf("mkdir in a removed directory: %v", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Nlink != 0 {
		t.Errorf("%d links, %v", st.Nlink, err)
	}
	unix.Close(fd)
	orphansEnd(t, f)
}

// Orphans end with the mount too, whoever held them.
func TestOrphansEndWithTheMount(t *testing.T) {
	dir, w, f := workspace(t)
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR, 0600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := w.Conn.Abort(); err != nil {
		t.Fatal(err)
	}
	<-w.Conn.Done()
	orphansEnd(t, f)
	if _, err := unix.Pwrite(fd, []byte("x"), 0); err != unix.ENOTCONN {
		t.Errorf("after the abort: %v", err)
	}
}

// CASES 40: O_TMPFILE, named later through /proc.
func TestCase40_Tmpfile(t *testing.T) {
	dir, _, f := workspace(t)
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR, 0640)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, []byte("anonymous")); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Nlink != 0 || st.Mode != unix.S_IFREG|0640 {
		t.Errorf("%d links, mode %o, %v", st.Nlink, st.Mode, err)
	}
	proc := fmt.Sprintf("/proc/self/fd/%d", fd)
	if err := unix.Linkat(unix.AT_FDCWD, proc, unix.AT_FDCWD, dir+"/named", unix.AT_SYMLINK_FOLLOW); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	wantContent(t, dir+"/named", "anonymous")
	if st := stat(t, dir+"/named"); st.Nlink != 1 {
		t.Errorf("%d links", st.Nlink)
	}
	excl, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL, 0600)
	if err != nil {
		t.Fatal(err)
	}
	proc = fmt.Sprintf("/proc/self/fd/%d", excl)
	if err := unix.Linkat(unix.AT_FDCWD, proc, unix.AT_FDCWD, dir+"/never", unix.AT_SYMLINK_FOLLOW); err != unix.ENOENT {
		t.Errorf("O_EXCL: %v", err)
	}
	unix.Close(excl)
	orphansEnd(t, f)
}

// CASES 41 and holes: fallocate's modes, and SEEK_HOLE and SEEK_DATA after them.
func TestCase41_FallocateAndHoles(t *testing.T) {
	dir, _, _ := workspace(t)
	fd := openFile(t, dir+"/f", unix.O_CREAT|unix.O_RDWR, 0644)
	want := bytes.Repeat([]byte("d"), 64<<10)
	if _, err := unix.Pwrite(fd, want, 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode   uint32
		off, n int64
		size   int64
		zero   bool
	}{
		{0, 60 << 10, 68 << 10, 128 << 10, false},
		{unix.FALLOC_FL_KEEP_SIZE, 100 << 10, 100 << 10, 128 << 10, false},
		{unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, 8 << 10, 8 << 10, 128 << 10, true},
		{unix.FALLOC_FL_ZERO_RANGE, 30000, 1000, 128 << 10, true},
		{unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE, 120 << 10, 100 << 10, 128 << 10, true},
	} {
		if err := unix.Fallocate(fd, c.mode, c.off, c.n); err != nil {
			t.Fatalf("mode %d: %v", c.mode, err)
		}
		if c.zero {
			clear(want[min(c.off, int64(len(want))):min(c.off+c.n, int64(len(want)))])
		}
		var st unix.Stat_t
		unix.Fstat(fd, &st)
		if st.Size != c.size {
			t.Errorf("mode %d: size %d, want %d", c.mode, st.Size, c.size)
		}
	}
	got := make([]byte, 128<<10)
	if n, err := unix.Pread(fd, got, 0); n != len(got) || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if !bytes.Equal(got[:len(want)], want) || len(bytes.Trim(got[len(want):], "\x00")) != 0 {
		t.Error("contents differ")
	}
	hole, err := unix.Seek(fd, 0, unix.SEEK_HOLE)
	if err != nil || hole != 8<<10 {
		t.Errorf("first hole at %d, %v", hole, err)
	}
	data, err := unix.Seek(fd, hole, unix.SEEK_DATA)
	if err != nil || data != 16<<10 {
		t.Errorf("data after it at %d, %v", data, err)
	}
	if _, err := unix.Seek(fd, 1<<20, unix.SEEK_DATA); err != unix.ENXIO {
		t.Errorf("behind the end: %v", err)
	}
	for _, mode := range []uint32{unix.FALLOC_FL_COLLAPSE_RANGE, unix.FALLOC_FL_INSERT_RANGE} {
		if err := unix.Fallocate(fd, mode, 0, 4096); err != unix.EOPNOTSUPP {
			t.Errorf("mode %d: %v, want EOPNOTSUPP", mode, err)
		}
	}
	if err := unix.Fallocate(fd, 0, 0, 200<<10); err != nil {
		t.Errorf("after a refused mode: %v", err)
	}
}

// CASES 43: copy_file_range copies all of a base file that nobody has read yet, into a new file and within one.
func TestCase43_CopyFileRange(t *testing.T) {
	data := strings.Repeat("0123456789abcdef", 20_000)
	dir, w, _ := workspace(t, imagetest.File("src", data, 0644))
	in := openFile(t, dir+"/src", unix.O_RDWR, 0)
	out := openFile(t, dir+"/dst", unix.O_CREAT|unix.O_RDWR, 0644)
	left := len(data)
	for left > 0 {
		n, err := unix.CopyFileRange(in, nil, out, nil, left, 0)
		if err != nil || n == 0 {
			t.Fatalf("%d left: %d, %v", left, n, err)
		}
		left -= n
	}
	wantContent(t, dir+"/dst", data)
	if w.Conn.Requests()["COPY_FILE_RANGE"] == 0 {
		t.Error("the kernel copied by itself")
	}
	from, to := int64(0), int64(200_000)
	if n, err := unix.CopyFileRange(in, &from, in, &to, 1000, 0); n != 1000 || err != nil {
		t.Fatalf("within one file: %d, %v", n, err)
	}
	wantContent(t, dir+"/src", data[:200_000]+data[:1000]+data[201_000:])
	inChild(t, "map-and-copy", dir+"/src", dir+"/dst")
	wantContent(t, dir+"/dst", "mapped"+data[6:])
}

func init() {
	// A copy has the store through a mapping that the server hasn't seen.
	children["map-and-copy"] = func(args []string) error {
		in, m, err := mapFile(args[0])
		if err != nil {
			return err
		}
		copy(m, "mapped")
		out, err := unix.Open(args[1], unix.O_WRONLY, 0)
		if err != nil {
			return err
		}
		var from, to int64
		if n, err := unix.CopyFileRange(in, &from, out, &to, 100, 0); n != 100 || err != nil {
			return fmt.Errorf("copy_file_range: %d, %w", n, err)
		}
		return nil
	}
}

// CASES 34: O_DIRECT reads and writes.
func TestCase34_DirectIO(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.File("f", strings.Repeat("q", 10_000), 0644))
	page, err := unix.Mmap(-1, 0, 16384, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page)
	fd := openFile(t, dir+"/f", unix.O_RDWR|unix.O_DIRECT, 0)
	if n, err := unix.Pread(fd, page, 0); n != 10_000 || err != nil || string(page[:n]) != strings.Repeat("q", 10_000) {
		t.Fatalf("%d, %v", n, err)
	}
	copy(page, strings.Repeat("w", 4096))
	if n, err := unix.Pwrite(fd, page[:4096], 4096); n != 4096 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	wantContent(t, dir+"/f", strings.Repeat("q", 4096)+strings.Repeat("w", 4096)+strings.Repeat("q", 10_000-8192))
}

// CASES 35, 36, 38: flock, fcntl and OFD locks are kept by the kernel, exclude, and are freed at close.
func TestCase35_Locks(t *testing.T) {
	dir, w, _ := workspace(t, imagetest.File("f", "x", 0644))
	a := openFile(t, dir+"/f", unix.O_RDWR, 0)
	b := openFile(t, dir+"/f", unix.O_RDWR, 0)
	other := openFile(t, dir+"/f", unix.O_RDONLY, 0) // keeps the file open throughout
	_ = other
	if err := unix.Flock(a, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(b, unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("flock twice: %v", err)
	}
	unix.Close(a)
	if err := unix.Flock(b, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("after close: %v", err)
	}
	lk := unix.Flock_t{Type: unix.F_WRLCK, Len: 10}
	if err := unix.FcntlFlock(uintptr(b), unix.F_OFD_SETLK, &lk); err != nil {
		t.Errorf("OFD: %v", err)
	}
	c := openFile(t, dir+"/f", unix.O_RDWR, 0)
	lk2 := unix.Flock_t{Type: unix.F_WRLCK, Start: 5, Len: 10}
	if err := unix.FcntlFlock(uintptr(c), unix.F_OFD_SETLK, &lk2); err != unix.EAGAIN {
		t.Errorf("overlapping OFD: %v", err)
	}
	lk3 := unix.Flock_t{Type: unix.F_WRLCK, Start: 100, Len: 10}
	if err := unix.FcntlFlock(uintptr(c), unix.F_SETLK, &lk3); err != nil {
		t.Errorf("fcntl: %v", err)
	}
	for op := range w.Conn.Requests() {
		if strings.HasSuffix(op, "LK") || strings.HasSuffix(op, "LKW") {
			t.Errorf("%s reached the server", op)
		}
	}
	// Two processes take turns.
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 20 {
				fd, err := unix.Open(dir+"/f", unix.O_RDWR|unix.O_CLOEXEC, 0)
				if err != nil {
					t.Error(err)
					return
				}
				_ = unix.Flock(fd, unix.LOCK_SH)
				unix.Close(fd)
			}
		})
	}
	unix.Close(b)
	wg.Wait()
}

// A program that runs can't be written; #! scripts and executable bits work.
func TestExecution(t *testing.T) {
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Skipf("needs a program to copy into the mount: %v", err)
	}
	dir, _, _ := workspace(t, imagetest.File("script", "#!/bin/sh\necho \"ran $1\"\n", 0755),
		imagetest.File("plain", "#!/bin/sh\necho no\n", 0644))
	// By way of a shell: the child of a serving Go process must not need the server before its exec.
	sh := func(line string) *exec.Cmd { return exec.Command("/bin/sh", "-c", line) }
	out, err := sh(dir + "/script it").CombinedOutput()
	if err != nil || string(out) != "ran it\n" {
		t.Errorf("%q, %v", out, err)
	}
	if err := sh(dir + "/plain").Run(); err == nil {
		t.Error("a file without x ran")
	}
	if err := os.Chmod(dir+"/plain", 0755); err != nil {
		t.Fatal(err)
	}
	if err := sh(dir + "/plain").Run(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(dir+"/prog", sleep, 0755); err != nil {
		t.Fatal(err)
	}
	cmd := sh("exec " + dir + "/prog 60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	within(t, 5*time.Second, "the program is there", func() bool {
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid))
		return exe == dir+"/prog"
	})
	if _, err := unix.Open(dir+"/prog", unix.O_WRONLY, 0); err != unix.ETXTBSY {
		t.Errorf("writing a running program: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if fd, err := unix.Open(dir+"/prog", unix.O_WRONLY, 0); err != nil {
		t.Errorf("after its end: %v", err)
	} else {
		unix.Close(fd)
	}
}

// Local changes fire inotify (CASES 54).
func TestCase54_Inotify(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.File("f", "x", 0644))
	in, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(in)
	if _, err := unix.InotifyAddWatch(in, dir, unix.IN_ALL_EVENTS); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/f", "y")
	os.Rename(dir+"/f", dir+"/g")
	os.Remove(dir + "/g")
	var got uint32
	buf := make([]byte, 8192)
	within(t, 5*time.Second, "events", func() bool {
		n, err := unix.Read(in, buf)
		for b := buf[:max(n, 0)]; err == nil && len(b) > 0; {
			ev := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
			got |= ev.Mask
			b = b[unix.SizeofInotifyEvent+int(ev.Len):]
		}
		const want = unix.IN_OPEN | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE
		return got&want == want
	})
}

// statx has the birth time; statfs has the fork's numbers; devices are inert.
func TestStatxStatfsAndDevices(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.File("f", "x", 0644),
		imagetest.Special("null", unix.S_IFCHR|0666, 1<<8|3), imagetest.Special("fifo", unix.S_IFIFO|0644, 0))
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir+"/f", 0, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		t.Fatal(err)
	}
	if st.Mask&unix.STATX_BTIME == 0 || st.Btime.Sec != imagetest.Epoch.Sec || st.Btime.Nsec != imagetest.Epoch.Nsec {
		t.Errorf("btime %v, mask %#x", st.Btime, st.Mask)
	}
	before := time.Now().Unix()
	write(t, dir+"/new", "")
	if err := unix.Statx(unix.AT_FDCWD, dir+"/new", 0, unix.STATX_BTIME, &st); err != nil || st.Btime.Sec < before {
		t.Errorf("btime of a new file %v, %v", st.Btime, err)
	}
	var fsst unix.Statfs_t
	if err := unix.Statfs(dir, &fsst); err != nil || fsst.Namelen != 255 || fsst.Blocks == 0 || fsst.Files == 0 {
		t.Errorf("%+v, %v", fsst, err)
	}
	if st := stat(t, dir+"/null"); st.Rdev != unix.Mkdev(1, 3) {
		t.Errorf("rdev %#x", st.Rdev)
	}
	if _, err := unix.Open(dir+"/null", unix.O_RDONLY, 0); err != unix.EACCES {
		t.Errorf("opening a device: %v", err)
	}
	if err := unix.Mknod(dir+"/big", unix.S_IFBLK|0600, int(unix.Mkdev(259, 70000))); err != nil {
		t.Fatal(err)
	}
	if err := unix.Statx(unix.AT_FDCWD, dir+"/big", 0, unix.STATX_BTIME, &st); err != nil || st.Rdev_major != 259 || st.Rdev_minor != 70000 {
		t.Errorf("%d:%d, %v", st.Rdev_major, st.Rdev_minor, err)
	}
	done := make(chan error, 1)
	go func() { done <- os.WriteFile(dir+"/fifo", []byte("through"), 0) }()
	if b, err := os.ReadFile(dir + "/fifo"); err != nil || string(b) != "through" {
		t.Errorf("fifo: %q, %v", b, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// CASES 60: lookups, removals and child processes of the serving process itself don't hang.
func TestCase60_ServerUsesItsOwnMount(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.Dir("d", 0777))
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for j := range 60 {
				p := filepath.Join(dir, "d", fmt.Sprintf("f%d", j%7))
				switch (i + j) % 4 {
				case 0:
					os.WriteFile(p, []byte("x"), 0644)
				case 1:
					os.Remove(p)
				case 2:
					os.ReadFile(p)
					runtime.GC()
				case 3:
					if j%8 == 3 {
						exec.Command("/bin/sh", "-c", "cd "+dir+" && ls d").Run()
					}
				}
			}
		})
	}
	wg.Wait()
}
