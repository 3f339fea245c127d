package isolate

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	testMemory = 512 << 20
	testPids   = 100
)

// plantHost makes a piece of the host that is full of what must not be found: a source repository with an alternate, a
// store, sockets of all kinds, bind twins, overlays, a process that sits in the repository, a key.
func plantHost(t *testing.T) (target, []string) {
	t.Helper()
	// Not below /tmp or /run: those are private to a view anyway.
	base, err := os.MkdirTemp("/var/lib", "tine-escape-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeTree(t, base) })
	os.Chmod(base, 0o755)
	in := func(p ...string) string { return filepath.Join(append([]string{base}, p...)...) }
	secret := func(dir string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(marker+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"repo", "repo/.git/objects", "alternate", "store", "inner"} {
		secret(in(d))
	}
	for _, d := range []string{"twin", "subtwin", "wholetwin", "overlay", "overlaytop", "empty", "disk", "disktwin", "late", "open"} {
		os.Mkdir(in(d), 0o755)
	}
	os.Symlink(in("repo"), in("link"))
	mount := func(src, dst, fstype string, flags uintptr, data string) {
		t.Helper()
		if err := unix.Mount(src, dst, fstype, flags, data); err != nil {
			t.Fatalf("mount %s: %v", dst, err)
		}
		t.Cleanup(func() { unix.Unmount(dst, unix.MNT_DETACH) })
	}
	mount(in("repo"), in("twin"), "", unix.MS_BIND, "")
	mount(in("repo/.git"), in("subtwin"), "", unix.MS_BIND, "")
	mount(base, in("wholetwin"), "", unix.MS_BIND, "")
	mount("o", in("overlay"), "overlay", 0, "lowerdir="+in("repo")+":"+in("empty"))
	mount("o", in("overlaytop"), "overlay", 0, "lowerdir="+base+":"+t.TempDir())
	mount("d", in("disk"), "tmpfs", 0, "")
	os.Mkdir(in("disk", "checkout"), 0o755)
	secret(in("disk", "checkout"))
	mount(in("disk"), in("disktwin"), "", unix.MS_BIND, "")

	tg := target{
		Paths: []string{in("repo"), in("alternate"), in("store"), in("link"), in("twin"), in("subtwin"), in("wholetwin"), in("overlay"), in("overlaytop"), in("disk"), in("disktwin"),
			in("wholetwin", "repo"), in("overlaytop", "repo")},
		Late: in("late"),
		Key:  "tine-escape-test",
	}
	hide := []string{in("link"), in("alternate"), in("store"), in("disk", "checkout"), in("not", "there"), in("inner")}

	answer := func(l net.Listener) {
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				io.WriteString(c, marker)
				c.Close()
			}
		}()
	}
	listen := func(name string) {
		t.Helper()
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		answer(l)
	}
	for _, s := range []string{in("open", "host.sock"), in("repo", "in-repo.sock"), "/run/tine-escape.sock", "/tmp/tine-escape.sock"} {
		listen(s)
		os.Chmod(s, 0o777)
		tg.Sockets = append(tg.Sockets, s)
	}
	tg.Sockets = append(tg.Sockets, in("wholetwin", "open", "host.sock"), in("overlaytop", "open", "host.sock"))
	tg.Abstract = "@tine-escape-" + filepath.Base(base)
	listen(tg.Abstract)

	// A socket with a relative name, as those with long paths are bound.
	relative := exec.Command("/proc/self/exe", "relative.sock")
	relative.Args[0] = "listener"
	relative.Dir = in("open")
	startBeside(t, relative)
	tg.Sockets = append(tg.Sockets, in("open", "relative.sock"))

	sleeper := exec.Command("/proc/self/exe")
	sleeper.Args[0] = "sleeper"
	sleeper.Dir = in("repo")
	f, err := os.Open(in("repo", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	sleeper.ExtraFiles = []*os.File{f}
	startBeside(t, sleeper)
	tg.HostPID = sleeper.Process.Pid

	// Known to nobody but the kernel: a descriptor without close-on-exec, as a shell's redirection leaves one.
	leak, err := unix.Open(in("repo"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(leak) })

	for _, d := range []string{in("repo"), in("store"), base} {
		h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, d, 0)
		if err != nil {
			t.Logf("no file handles: %v", err)
			break
		}
		tg.HandleTyp = h.Type()
		tg.Handles = append(tg.Handles, hex.EncodeToString(h.Bytes()))
	}
	var st unix.Stat_t
	unix.Stat("/", &st)
	tg.DeviceNr = st.Dev
	mounts, _ := readMounts()
	for _, m := range mounts {
		if m.Point == "/" && strings.HasPrefix(m.Source, "/dev/") {
			tg.Device = m.Source
		}
	}
	if id, err := unix.AddKey("user", tg.Key, []byte(marker), unix.KEY_SPEC_USER_KEYRING); err == nil {
		t.Cleanup(func() { unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_USER_KEYRING, 0, 0) })
	}
	if id, _, errno := unix.Syscall(unix.SYS_SHMGET, 0x71e5, 4096, unix.IPC_CREAT|0o666); errno == 0 {
		t.Cleanup(func() { unix.Syscall(unix.SYS_SHMCTL, id, unix.IPC_RMID, 0) })
	}
	shm := filepath.Join("/dev/shm", "tine-escape")
	if os.WriteFile(shm, []byte(marker), 0o666) == nil {
		t.Cleanup(func() { os.Remove(shm) })
	}
	return tg, hide
}

func startBeside(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil { // "ready\n"
		t.Fatalf("%s: %v", cmd.Args[0], err)
	}
}

// removeTree removes a planted host; whatever is still mounted below must not be followed.
func removeTree(t testing.TB, dir string) {
	mounts, _ := readMounts()
	for i := len(mounts) - 1; i >= 0; i-- {
		if below(mounts[i].Point, dir) {
			unix.Unmount(mounts[i].Point, unix.MNT_DETACH)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

// attackSpec runs one attack.
func attackSpec(t *testing.T, name string, tg target, hide []string, uid uint32) Spec {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(tg)
	if err != nil {
		t.Fatal(err)
	}
	ws := workspace(t)
	os.Chmod(ws, 0o777)
	return Spec{
		Args: []string{"/run/attack", name, string(data)}, Env: []string{"PATH=/usr/bin:/bin"}, UID: uid, GID: uid,
		Workspaces: []Workspace{{Target: "/workspace", Path: ws}},
		Binds:      []Bind{{Source: self, Target: "/run/attack"}},
		Hide:       hide, Home: Home{Path: "/root"}, Limits: Limits{Memory: testMemory, Pids: testPids},
	}
}

// TestS13_Escape runs every attack as root and as an ordinary user and wants none to get hold of anything.
func TestS13_Escape(t *testing.T) {
	needRoot(t)
	tg, hide := plantHost(t)
	var names []string
	for n := range attacks {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, uid := range []uint32{0, 65534} {
			t.Run(fmt.Sprintf("%s/uid=%d", name, uid), func(t *testing.T) {
				spec := attackSpec(t, name, tg, hide, uid)
				if name == "propagation" {
					mountLate(t, tg.Late, spec.Workspaces[0].Path)
				}
				o := run(t, spec)
				for _, l := range strings.Split(o.out, "\n") {
					if got, ok := strings.CutPrefix(l, "GOT "); ok {
						t.Errorf("got %s", got)
					}
				}
				if o.status.Code != 0 || !strings.Contains(o.out, "attack done") || strings.Contains(o.out+o.err, marker) {
					t.Errorf("status %d, output %q, stderr %q", o.status.Code, o.out, o.err)
				}
				if o.report.AbstractSockets == "shared" && name == "abstract" {
					t.Log("this kernel can't fence off abstract sockets; the report says so")
				}
			})
		}
	}
}

// TestS13_AttacksWork: the attacks do find what is not hidden, so that finding nothing means something.
func TestS13_AttacksWork(t *testing.T) {
	needRoot(t)
	tg, hide := plantHost(t)
	for _, name := range []string{"paths", "sockets", "mount-disk", "remount"} {
		spec := attackSpec(t, name, tg, hide, 0)
		spec.WritableHost = true
		if o := run(t, spec); !strings.Contains(o.out, "GOT ") {
			t.Errorf("%s finds nothing on an open host: %+v", name, o)
		}
	}
}

// mountLate mounts something to find over a directory while the view is in use.
func mountLate(t *testing.T, dir, ws string) {
	go func() {
		for range 1000 {
			if _, err := os.Stat(filepath.Join(ws, "ready")); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		if unix.Mount("late", dir, "tmpfs", 0, "") == nil {
			os.WriteFile(filepath.Join(dir, "secret"), []byte(marker), 0o644)
		}
		os.WriteFile(filepath.Join(ws, "mounted"), nil, 0o644)
	}()
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

// TestS13_WhatLiesOpenWithoutTheFilter keeps a record of why there is a system call filter: these attacks succeed as soon
// as it is left out. If one stops doing so on some kernel that is no failure.
func TestS13_WhatLiesOpenWithoutTheFilter(t *testing.T) {
	needRoot(t)
	tg, hide := plantHost(t)
	for name := range attacks {
		spec := attackSpec(t, name, tg, hide, 0)
		spec.unfiltered = true
		o := run(t, spec)
		for _, l := range strings.Split(o.out, "\n") {
			if strings.HasPrefix(l, "GOT ") {
				t.Logf("%s: %s", name, l)
			}
		}
	}
}
