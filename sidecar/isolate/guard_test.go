package isolate

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func serveMarker(t *testing.T, name string) {
	t.Helper()
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
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

// TestS13_LaterOnTheHost: a socket that a daemon binds, and a hidden directory that is made anew, while a program runs are
// covered soon.
func TestS13_LaterOnTheHost(t *testing.T) {
	needRoot(t)
	base, err := os.MkdirTemp("/var/lib", "tine-later-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeTree(t, base) })
	os.Chmod(base, 0o755)
	repo, sock, again := filepath.Join(base, "repo"), filepath.Join(base, "new.sock"), filepath.Join(base, "again.sock")
	os.MkdirAll(repo, 0o755)
	serveMarker(t, again)

	tg := target{Paths: []string{repo}, Sockets: []string{sock, again}}
	spec := attackSpec(t, "sockets", tg, []string{repo}, 0)
	spec.Args = append([]string{"/bin/sh", "-c", `touch /workspace/ready; while [ ! -e /workspace/go ]; do sleep 0.02; done; cat "$0"/* 2>/dev/null; "$@"`, repo}, spec.Args...)
	var out strings.Builder
	spec.Stdout, spec.Stderr = &out, &out
	p, err := Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	ws := spec.Workspaces[0].Path
	waitFor(t, filepath.Join(ws, "ready"))

	if err := os.RemoveAll(repo); err != nil {
		t.Fatal(err)
	}
	os.MkdirAll(repo, 0o755)
	os.WriteFile(filepath.Join(repo, "secret"), []byte(marker), 0o644)
	os.Remove(again)
	serveMarker(t, again)
	serveMarker(t, sock)
	time.Sleep(3 * guardInterval)

	os.WriteFile(filepath.Join(ws, "go"), nil, 0o644)
	st, err := p.Wait()
	if err != nil || st.Code != 0 || out.String() != "attack done\n" {
		t.Errorf("%+v, %v, %q", st, err, out.String())
	}
}

// TestS13_LoopImage: the image file of a hidden file system is hidden as well.
func TestS13_LoopImage(t *testing.T) {
	needRoot(t)
	base, err := os.MkdirTemp("/var/lib", "tine-loop-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeTree(t, base) })
	os.Chmod(base, 0o755)
	image, disk := filepath.Join(base, "image"), filepath.Join(base, "disk")
	os.Mkdir(disk, 0o755)
	if err := os.WriteFile(image, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	os.Truncate(image, 8<<20)
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4: %v %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, disk).CombinedOutput(); err != nil {
		t.Skipf("mount -o loop: %v %s", err, out)
	}
	defer exec.Command("umount", "-d", disk).Run()
	os.Mkdir(filepath.Join(disk, "repo"), 0o755)
	os.WriteFile(filepath.Join(disk, "repo", "secret"), []byte(marker), 0o644)
	if d, err := os.Open(disk); err == nil {
		unix.Syncfs(int(d.Fd()))
		d.Close()
	}
	script := "grep -c " + marker[:9] + " " + image + "; cat " + disk + "/repo/secret 2>/dev/null; ls " + disk
	if out, _ := exec.Command("/bin/sh", "-c", script).Output(); strings.HasPrefix(string(out), "0") {
		t.Fatalf("the image doesn't hold the marker: %s", out)
	}
	spec := baseSpec(t, script)
	spec.Hide = []string{filepath.Join(disk, "repo")}
	wantRun(t, spec, "0\nlost+found\nrepo")
}

// TestS13_MountsInHome: other disks in the home directory stay visible, read-only, and what is hidden in them stays hidden.
func TestS13_MountsInHome(t *testing.T) {
	needRoot(t)
	home := homeOnDisk(t)
	disk := filepath.Join(home, "disk")
	os.Mkdir(disk, 0o755)
	if err := unix.Mount("d", disk, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"repo", "data"} {
		os.Mkdir(filepath.Join(disk, d), 0o755)
		os.WriteFile(filepath.Join(disk, d, "file"), []byte(d+"\n"), 0o644)
	}
	spec := baseSpec(t, "cd "+home+"; cat disk/data/file; ls disk/repo; touch disk/x 2>/dev/null && echo written; touch y && echo own")
	spec.Home.Path, spec.Hide = home, []string{filepath.Join(disk, "repo")}
	wantRun(t, spec, "data\nown")
}

// TestPureV2 runs in a mount namespace where only the unified hierarchy is mounted, at its usual place.
func TestPureV2(t *testing.T) {
	needRoot(t)
	cmd := exec.Command("unshare", "-m", "--propagation", "private", "/bin/sh", "-c", `
while umount -l /sys/fs/cgroup 2>/dev/null; do :; done; umount -R -l /sys/fs/cgroup 2>/dev/null
mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit 77
exec "$0" -test.run 'TestV2Inner' -test.v`, "/proc/self/exe")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args[len(cmd.Args)-1] = self
	cmd.Env = append(os.Environ(), "ISOLATE_TEST_V2=1")
	out, err := cmd.CombinedOutput()
	if exit, ok := err.(*exec.ExitError); ok && exit.ExitCode() == 77 {
		t.Skipf("no cgroup2: %s", out)
	}
	if err != nil || !strings.Contains(string(out), "PASS: TestV2Inner") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestV2Inner(t *testing.T) {
	if os.Getenv("ISOLATE_TEST_V2") == "" {
		t.Skip("run by TestPureV2")
	}
	spec := baseSpec(t, "cat /proc/self/cgroup | grep ^0; ls /sys/fs/cgroup/cgroup.procs; touch /sys/fs/cgroup/x 2>/dev/null || mkdir /sys/fs/cgroup/x 2>/dev/null || echo read-only")
	o := run(t, spec)
	if o.report.Cgroup != "v2" || o.out != "0::/\n/sys/fs/cgroup/cgroup.procs\nread-only\n" {
		t.Errorf("%+v", o)
	}
	// Each limit either works or is refused by name.
	have, _ := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	for controller, l := range map[string]Limits{"memory": {Memory: 256 << 20}, "cpu": {CPUs: 1}, "pids": {Pids: 50}} {
		spec.Limits = l
		p, err := Start(context.Background(), spec)
		if err == nil {
			p.Wait()
		}
		if _, refused := err.(*UnsupportedError); refused == contains(strings.Fields(string(have)), controller) || err != nil && !refused {
			t.Errorf("%s with controllers %s: %v", controller, have, err)
		}
	}
	p, err := Start(context.Background(), baseSpec(t, "sleep 60 & sleep 60"))
	if err != nil {
		t.Fatal(err)
	}
	writeControl(filepath.Join(p.Cgroup().Payload()[0], "cgroup.freeze"), "1")
	p.Kill()
	if st, err := p.Wait(); err != nil || st.Code != 137 {
		t.Errorf("%+v, %v", st, err)
	}
}
