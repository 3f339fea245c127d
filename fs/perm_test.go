package fs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tine/fs"
	"tine/overlay"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

const user, group = 1000, 1000

// owned gives a base entry to the test's user.
func owned(e imagetest.Entry) imagetest.Entry {
	return e.With(func(n *image.Node) { n.UID, n.GID = user, group })
}

// openable makes the test's directories passable for the user.
func openable(t *testing.T, dir string) {
	t.Helper()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		os.Chmod(d, 0755)
	}
}

// Permissions are checked although the server is never asked to open: cached entries give no rights.
func TestPermissionsAreTheKernels(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.File("ro", "ro", 0400), imagetest.File("none", "none", 0),
		imagetest.File("closed/in", "in", 0666), imagetest.File("open", "open", 0666),
		owned(imagetest.File("mine", "mine", 0600)), owned(imagetest.File("mine-ro", "x", 0400)))
	os.Chmod(dir+"/closed", 0)
	openable(t, dir)
	for _, p := range []string{"ro", "none", "closed/in", "open", "mine", "mine-ro"} {
		if _, err := os.ReadFile(dir + "/" + p); err != nil { // root warms the caches
			t.Fatal(err)
		}
	}
	as(t, user, group, nil, func() {
		for _, c := range []struct {
			name  string
			flags int
			want  error
		}{
			{"ro", unix.O_RDONLY, unix.EACCES}, {"ro", unix.O_WRONLY, unix.EACCES}, {"none", unix.O_RDONLY, unix.EACCES},
			{"closed/in", unix.O_RDONLY, unix.EACCES}, {"open", unix.O_RDWR, nil}, {"mine", unix.O_RDWR, nil},
			{"mine-ro", unix.O_RDONLY, nil}, {"mine-ro", unix.O_WRONLY, unix.EACCES},
			{"new", unix.O_CREAT | unix.O_WRONLY, unix.EACCES}, {"mine", unix.O_WRONLY | unix.O_TRUNC, nil},
		} {
			fd, err := unix.Open(dir+"/"+c.name, c.flags, 0644)
			if err == nil {
				unix.Close(fd)
				err = nil
			}
			if fmt.Sprint(err) != fmt.Sprint(c.want) {
				t.Errorf("open %s %#x: %v, want %v", c.name, c.flags, err, c.want)
			}
		}
		if err := unix.Unlink(dir + "/mine"); err != unix.EACCES {
			t.Errorf("unlink in a directory of root: %v", err)
		}
		if err := unix.Chmod(dir+"/open", 0777); err != unix.EPERM {
			t.Errorf("chmod of another's file: %v", err)
		}
		if err := unix.Chown(dir+"/mine", 0, -1); err != unix.EPERM {
			t.Errorf("giving a file away: %v", err)
		}
	})
}

// CASES 51: who has the mode can write what the base has.
func TestCase51_UserWritesBase(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.Dir("open", 0777), imagetest.File("open/f", "root's", 0666), imagetest.Dir("sticky", 01777),
		imagetest.File("sticky/root", "", 0666))
	openable(t, dir)
	as(t, user, group, nil, func() {
		fd, err := unix.Open(dir+"/open/touched", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0644)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		if st := stat(t, dir+"/open/touched"); st.Uid != user || st.Gid != group {
			t.Errorf("owner %d:%d", st.Uid, st.Gid)
		}
		write(t, dir+"/open/f", "changed")
		if err := os.Rename(dir+"/open/f", dir+"/open/g"); err != nil {
			t.Error(err)
		}
		if err := unix.Unlink(dir + "/sticky/root"); err != unix.EPERM {
			t.Errorf("another's file in a sticky directory: %v", err)
		}
	})
}

// CASES 52: a file made read-only can be written by the descriptor that made it, also by an ordinary user.
func TestCase52_CreateReadOnly(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.Dir("d", 0777))
	openable(t, dir)
	as(t, user, group, nil, func() {
		fd, err := unix.Open(dir+"/d/tmp_pack", unix.O_CREAT|unix.O_RDWR|unix.O_EXCL, 0444)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if _, err := unix.Write(fd, []byte("pack")); err != nil {
			t.Error(err)
		}
		if err := unix.Chmod(dir+"/d/tmp_pack", 0400); err != nil {
			t.Error(err)
		}
		if _, err := unix.Open(dir+"/d/tmp_pack", unix.O_RDWR, 0); err != unix.EACCES {
			t.Errorf("opened again: %v", err)
		}
		if err := os.Rename(dir+"/d/tmp_pack", dir+"/d/pack"); err != nil {
			t.Error(err)
		}
		wantContent(t, dir+"/d/pack", "pack")
	})
}

// CREATE on the word of a stale negative entry gives no rights on what is there.
func TestCreateMeetsFile(t *testing.T) {
	dir, _, f := workspace(t, imagetest.Dir("d", 0777))
	openable(t, dir)
	d := stat(t, dir+"/d").Ino
	for i, mode := range []uint32{0600, 0666} {
		name := fmt.Sprintf("f%d", i)
		os.Stat(dir + "/d/" + name) // negative
		f.fork.OnInvalidate(nil)    // and stale from here on
		a, err := f.fork.Create(overlay.Caller{Umask: 0}, d, name, mode, true)
		if err != nil {
			t.Fatal(err)
		}
		f.fork.Write(overlay.Caller{}, a.Ino, []byte("secret"), 0, false)
		as(t, user, group, nil, func() {
			if _, err := unix.Open(dir+"/d/"+name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0644); err != unix.EEXIST {
				t.Errorf("%o, exclusively: %v", mode, err)
			}
			fd, err := unix.Open(dir+"/d/"+name, unix.O_CREAT|unix.O_RDWR|unix.O_TRUNC, 0644)
			if mode == 0600 {
				if err != unix.EACCES {
					t.Errorf("%o: %v, want EACCES", mode, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%o: %v", mode, err)
			}
			unix.Close(fd)
		})
		if st := stat(t, dir+"/d/"+name); (mode == 0600) != (st.Size == 6) {
			t.Errorf("%o: size %d", mode, st.Size)
		}
	}
}

// suid, sgid and capabilities go when an ordinary user changes contents by whatever call, and when the owner changes.
func TestSuidIsCleared(t *testing.T) {
	changes := []struct {
		name string
		do   func(fd, other int) error
	}{
		{"write", func(fd, _ int) error { _, err := unix.Pwrite(fd, []byte("x"), 0); return err }},
		{"truncate", func(fd, _ int) error { return unix.Ftruncate(fd, 1) }},
		{"fallocate", func(fd, _ int) error { return unix.Fallocate(fd, 0, 0, 8192) }},
		{"punch", func(fd, _ int) error {
			return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096)
		}},
		{"copy_file_range", func(fd, other int) error {
			_, err := unix.CopyFileRange(other, nil, fd, nil, 10, 0)
			return err
		}},
		{"O_TRUNC", func(fd, _ int) error {
			n, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY|unix.O_TRUNC, 0)
			unix.Close(n)
			return err
		}},
	}
	var entries []imagetest.Entry
	for _, c := range changes {
		entries = append(entries, owned(imagetest.File(c.name, strings.Repeat("o", 5000), 06777)))
	}
	dir, _, _ := workspace(t, append(entries, owned(imagetest.File("other", strings.Repeat("p", 100), 0644)))...)
	openable(t, dir)
	as(t, user, group, nil, func() {
		other := openFile(t, dir+"/other", unix.O_RDONLY, 0)
		for _, c := range changes {
			fd := openFile(t, dir+"/"+c.name, unix.O_RDWR, 0)
			if err := c.do(fd, other); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if st := stat(t, dir+"/"+c.name); st.Mode&07777 != 0777 {
				t.Errorf("%s: mode %o", c.name, st.Mode&07777)
			}
		}
	})
	write(t, dir+"/s", "x")
	os.Chmod(dir+"/s", 0755|os.ModeSetuid)
	// A user who may write to another's suid file does, and clears the bit.
	os.Chmod(dir+"/s", 0777|os.ModeSetuid)
	as(t, user, group, nil, func() { write(t, dir+"/s", "changed") })
	if st := stat(t, dir+"/s"); st.Mode&07777 != 0777 || st.Size != 7 {
		t.Errorf("after another's write: mode %o, size %d", st.Mode&07777, st.Size)
	}
	os.Chmod(dir+"/s", 0755|os.ModeSetuid)
	if err := os.Chown(dir+"/s", user, -1); err != nil {
		t.Fatal(err)
	}
	if st := stat(t, dir+"/s"); st.Mode&unix.S_ISUID != 0 {
		t.Errorf("after chown: mode %o", st.Mode)
	}
}

// The umask counts, but under a default ACL (CASES 53).
func TestCase53_UmaskAndACL(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.Dir("plain", 0777), imagetest.Dir("acl", 0777), imagetest.File("f", "", 0644))
	old := unix.Umask(0077)
	defer unix.Umask(old)
	write(t, dir+"/plain/f", "")
	os.Mkdir(dir+"/plain/d", 0777)
	if st := stat(t, dir+"/plain/f"); st.Mode&0777 != 0600 {
		t.Errorf("file mode %o", st.Mode&0777)
	}
	if st := stat(t, dir+"/plain/d"); st.Mode&0777 != 0700 {
		t.Errorf("directory mode %o", st.Mode&0777)
	}
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
		return string(out)
	}
	if _, err := exec.LookPath("setfacl"); err != nil {
		t.Skip("needs setfacl, from the package acl; the test command installs it")
	}
	run("setfacl", "-d", "-m", "u:1000:rwx,g::rx,o::r", dir+"/acl")
	fd := openFile(t, dir+"/acl/f", unix.O_CREAT|unix.O_WRONLY, 0666)
	_ = fd
	if st := stat(t, dir+"/acl/f"); st.Mode&0777 != 0664 {
		t.Errorf("under a default ACL: mode %o, want 664", st.Mode&0777)
	}
	if out := run("getfacl", "-cpn", dir+"/acl/f"); !strings.Contains(out, "user:1000:rwx") {
		t.Errorf("inherited: %s", out)
	}
	run("setfacl", "-m", "u:1001:rw", dir+"/f")
	if out := run("getfacl", "-cpn", dir+"/f"); !strings.Contains(out, "user:1001:rw-") || !strings.Contains(out, "mask::rw-") {
		t.Errorf("%s", out)
	}
	openable(t, dir)
	as(t, 1001, 1001, nil, func() {
		fd, err := unix.Open(dir+"/f", unix.O_RDWR, 0)
		if err != nil {
			t.Errorf("by the ACL: %v", err)
		} else {
			unix.Close(fd)
		}
	})
	as(t, 1002, 1002, nil, func() {
		if _, err := unix.Open(dir+"/f", unix.O_RDWR, 0); err != unix.EACCES {
			t.Errorf("without an entry: %v", err)
		}
	})
	os.Chmod(dir+"/f", 0600) // the mask
	as(t, 1001, 1001, nil, func() {
		if _, err := unix.Open(dir+"/f", unix.O_RDWR, 0); err != unix.EACCES {
			t.Errorf("masked: %v", err)
		}
	})
}

// Supplementary groups count where the answer is the server's: setting an ACL keeps sgid for the group's members.
func TestSupplementaryGroups(t *testing.T) {
	acl := func() []byte { // u::rwx g::r-x o::r--
		return []byte{2, 0, 0, 0, 1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, 4, 0, 5, 0, 0xff, 0xff, 0xff, 0xff,
			0x20, 0, 4, 0, 0xff, 0xff, 0xff, 0xff}
	}
	f := func(n *image.Node) { n.UID, n.GID = user, 5000 }
	dir, _, _ := workspace(t, imagetest.File("member", "", 02755).With(f), imagetest.File("stranger", "", 02755).With(f))
	openable(t, dir)
	as(t, user, group, []int{4999, 5000}, func() {
		if err := unix.Setxattr(dir+"/member", "system.posix_acl_access", acl(), 0); err != nil {
			t.Error(err)
		}
	})
	as(t, user, group, []int{4999}, func() {
		if err := unix.Setxattr(dir+"/stranger", "system.posix_acl_access", acl(), 0); err != nil {
			t.Error(err)
		}
	})
	if st := stat(t, dir+"/member"); st.Mode&07777 != 02754 {
		t.Errorf("member: mode %o", st.Mode&07777)
	}
	if st := stat(t, dir+"/stranger"); st.Mode&07777 != 0754 {
		t.Errorf("stranger: mode %o", st.Mode&07777)
	}
}

func TestXattrs(t *testing.T) {
	dir, _, _ := workspace(t, imagetest.File("f", "", 0644).With(func(n *image.Node) {
		n.Xattrs = []image.Xattr{{Name: "user.base", Value: []byte("b")}}
	}))
	p := dir + "/f"
	get := func(name string) string {
		buf := make([]byte, 70_000)
		n, err := unix.Lgetxattr(p, name, buf)
		if err != nil {
			return err.Error()
		}
		return string(buf[:n])
	}
	if v := get("user.base"); v != "b" {
		t.Errorf("base: %q", v)
	}
	if v := get("user.none"); v != unix.ENODATA.Error() {
		t.Errorf("none: %q", v)
	}
	big := strings.Repeat("v", 65536)
	for name, value := range map[string]string{"user.new": "n", "trusted.t": "t", "security.s": "s", "user.empty": "", "user.big": big} {
		if err := unix.Lsetxattr(p, name, []byte(value), 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if v := get(name); v != value {
			t.Errorf("%s: %d bytes", name, len(v))
		}
	}
	if err := unix.Lsetxattr(p, "user.new", nil, unix.XATTR_CREATE); err != unix.EEXIST {
		t.Errorf("CREATE: %v", err)
	}
	if err := unix.Lsetxattr(p, "user.none", nil, unix.XATTR_REPLACE); err != unix.ENODATA {
		t.Errorf("REPLACE: %v", err)
	}
	if err := unix.Lsetxattr(p, "other.x", nil, 0); err != unix.EOPNOTSUPP {
		t.Errorf("a foreign namespace: %v", err)
	}
	if _, err := unix.Lgetxattr(p, "user.big", make([]byte, 10)); err != unix.ERANGE {
		t.Errorf("a short buffer: %v", err)
	}
	n, err := unix.Llistxattr(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, n)
	if n, err = unix.Llistxattr(p, buf); err != nil || strings.Count(string(buf[:n]), "\x00") != 6 {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if err := unix.Lremovexattr(p, "user.base"); err != nil {
		t.Error(err)
	}
	if err := unix.Lremovexattr(p, "user.base"); err != unix.ENODATA {
		t.Errorf("twice: %v", err)
	}
	if v := get("user.new"); v != "n" {
		t.Errorf("after all that: %q", v)
	}
}

// The owner map shows the base's root as the run's user.
func TestOwnerMapAtTheMount(t *testing.T) {
	f := newFork(t, imagetest.File("f", "x", 0644))
	f.fork.Close()
	f.config.Owners = overlay.OwnerMap{UID: user, GID: group}
	fork, err := overlay.Open(f.config)
	if err != nil {
		t.Fatal(err)
	}
	defer fork.Close()
	dir, w := mount(t, newServer(t), fork, fs.MountOptions{})
	defer w.Close()
	openable(t, dir)
	if st := stat(t, dir+"/f"); st.Uid != user || st.Gid != group {
		t.Errorf("owner %d:%d", st.Uid, st.Gid)
	}
	as(t, user, group, nil, func() {
		write(t, dir+"/f", "mine")
		write(t, dir+"/g", "new")
	})
	if st := stat(t, dir+"/g"); st.Uid != user {
		t.Errorf("new file of %d", st.Uid)
	}
}
