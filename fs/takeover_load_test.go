package fs_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Servers are killed again and again under load; programs in the mount wait and go on. TINE_FS_TAKEOVERS sets how
// often.
func TestO3_TakeoverUnderLoad(t *testing.T) {
	k := newKeeper(t)
	rounds, life := 8, 400*time.Millisecond
	if testing.Short() {
		rounds = 3
	}
	if s := os.Getenv("TINE_FS_TAKEOVERS"); s != "" {
		rounds, _ = strconv.Atoi(s)
	}
	wait := k.client("takeover-load", fmt.Sprint(time.Duration(rounds)*life+500*time.Millisecond))
	for range rounds {
		time.Sleep(life)
		k.kill()
		k.start(0)
	}
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	resentTotal.Lock()
	t.Logf("%d requests were handed out again", k.resent)
	resentTotal.Unlock()
	// What is in the mount is what a fork opened from the journal shows.
	before, err := listTree(k.dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(before) < 10 {
		t.Errorf("only %d names left to compare", len(before))
	}
	k.kill()
	k.start(0)
	after, err := listTree(k.dir)
	if err != nil || strings.Join(before, "\n") != strings.Join(after, "\n") {
		t.Errorf("%d names before, %d after, %v", len(before), len(after), err)
	}
}

func listTree(dir string) ([]string, error) {
	var list []string
	err := filepath.Walk(dir, func(p string, info os.FileInfo, err error) error {
		if err == nil {
			list = append(list, fmt.Sprintf("%s %v %d", strings.TrimPrefix(p, dir), info.Mode(), info.Size()))
		}
		return err
	})
	return list, err
}

func init() {
	// Arguments: mount, duration.
	children["takeover-load"] = func(args []string) error {
		d, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		end := time.Now().Add(d)
		errs := make(chan error, 4)
		counts := make([]int, 4)
		for w := range 4 {
			go func() {
				dir := fmt.Sprintf("%s/w%d", args[0], w)
				err := unix.Mkdir(dir, 0755)
				for err == nil && time.Now().Before(end) {
					if err = takeoverRound(dir, counts[w]); err != nil {
						err = fmt.Errorf("worker %d, round %d: %w", w, counts[w], err)
					}
					counts[w]++
				}
				errs <- err
			}()
		}
		for range 4 {
			if e := <-errs; e != nil {
				err = e
			}
		}
		fmt.Printf("%v rounds\n", counts)
		return err
	}
}

// takeoverRound does operations each of which fails or shows if it is done twice or not at all.
func takeoverRound(dir string, i int) (err error) {
	step := "start"
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", step, err)
		}
	}()
	try := func(name string, fn func() error) {
		if err == nil {
			step = name
			err = fn()
		}
	}
	p := func(n string) string { return fmt.Sprintf("%s/%s%d", dir, n, i) }
	data := strings.Repeat(fmt.Sprintf("%08d", i), 1000)
	var fd int
	try("mkdir", func() error { return unix.Mkdir(p("d"), 0755) })
	try("create", func() (err error) {
		fd, err = unix.Open(p("f"), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_APPEND, 0644)
		return err
	})
	for j := range 8 {
		try("append", func() error {
			n, err := unix.Write(fd, []byte(data[j*1000:(j+1)*1000]))
			if err == nil && n != 1000 {
				err = io.ErrShortWrite
			}
			return err
		})
	}
	try("link", func() error { return unix.Link(p("f"), p("g")) })
	try("nlink 2", func() error { return linksAre(p("g"), 2) })
	try("unlink", func() error { return unix.Unlink(p("f")) })
	try("content", func() error { return fileIs(p("g"), data) })
	try("rename", func() error {
		return unix.Renameat2(unix.AT_FDCWD, p("g"), unix.AT_FDCWD, p("d")+"/h", unix.RENAME_NOREPLACE)
	})
	try("setxattr", func() error { return unix.Fsetxattr(fd, "user.x", []byte("v"), unix.XATTR_CREATE) })
	try("removexattr", func() error { return unix.Fremovexattr(fd, "user.x") })
	try("fsync", func() error {
		if i%16 == 0 {
			return unix.Fsync(fd)
		}
		return nil
	})
	try("unlink the last name", func() error { return unix.Unlink(p("d") + "/h") })
	try("read without a name", func() error {
		buf := make([]byte, len(data))
		n, err := unix.Pread(fd, buf, 0)
		if err == nil && string(buf[:n]) != data {
			err = fmt.Errorf("%d other bytes", n)
		}
		return err
	})
	try("close", func() error { return unix.Close(fd) })
	try("rmdir", func() error { return unix.Rmdir(p("d")) })
	try("keep", func() error { return os.WriteFile(p("k"), []byte(data[:i%3000]), 0600) })
	if i >= 20 {
		old := fmt.Sprintf("%s/k%d", dir, i-20)
		try("kept", func() error { return fileIs(old, strings.Repeat(fmt.Sprintf("%08d", i-20), 1000)[:(i-20)%3000]) })
		try("remove", func() error { return unix.Unlink(old) })
	}
	return err
}
