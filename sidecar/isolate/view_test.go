package isolate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNetworkNone(t *testing.T) {
	needRoot(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	script := fmt.Sprintf(`ls /sys/class/net; cat /proc/net/dev | grep -c :; exec 3<>/dev/tcp/127.0.0.1/%d && echo reached`, port)
	spec := baseSpec(t, "")
	spec.Args = []string{"/bin/bash", "-c", script}
	spec.Network = NetworkNone
	o := run(t, spec)
	if !strings.HasPrefix(o.out, "lo\n1\n") || strings.Contains(o.out, "reached") || o.report.AbstractSockets != "private" {
		t.Errorf("%+v", o)
	}
	spec = baseSpec(t, "")
	spec.Args = []string{"/bin/bash", "-c", fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%d && echo reached`, port)}
	if o := run(t, spec); o.out != "reached\n" {
		t.Errorf("the host's network: %+v", o)
	}
}

// TestS13_Stdio: a descriptor that leads out of the view is not passed on.
func TestS13_Stdio(t *testing.T) {
	needRoot(t)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	spec := baseSpec(t, "true")
	spec.Stdin = dir
	var refused *RefusedError
	if _, err := Start(context.Background(), spec); !errors.As(err, &refused) {
		t.Errorf("a directory as standard input: %v", err)
	}
	spec = baseSpec(t, "cat; wc -c < /dev/stdin")
	spec.Stdin = strings.NewReader("from a reader")
	wantRun(t, spec, "from a reader0")
}

// TestS13_SwappedTarget: a symlink in a workspace doesn't redirect the mount of another.
func TestS13_SwappedTarget(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, "true")
	os.Symlink("/etc", filepath.Join(spec.Workspaces[0].Path, "sub"))
	spec.Workspaces = append(spec.Workspaces, Workspace{Target: "/workspace/sub", Path: workspace(t)})
	if p, err := Start(context.Background(), spec); err == nil {
		p.Kill()
		t.Error("mounted through a symlink")
	}
	os.Remove(filepath.Join(spec.Workspaces[0].Path, "sub"))
	os.Mkdir(filepath.Join(spec.Workspaces[0].Path, "sub"), 0o755)
	spec.Args[2] = "echo inner > sub/f; cat /workspace/sub/f"
	wantRun(t, spec, "inner")
}

func TestUser(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, `id -u; id -g; id -G; grep CapEff /proc/self/status; umask; touch /workspace/mine && echo wrote; cat /etc/shadow 2>/dev/null | head -c1`)
	os.Chmod(spec.Workspaces[0].Path, 0o777)
	spec.UID, spec.GID, spec.Groups = 1234, 1235, []uint32{1236}
	wantRun(t, spec, "1234\n1235\n1235 1236\nCapEff:\t0000000000000000\n0022\nwrote")
}

// TestS13_Capabilities: Docker's default set less MKNOD, whatever the caller has.
func TestS13_Capabilities(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, `grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | tr -s '\t' ' '; grep Seccomp: /proc/self/status | tr '\t' ' '`)
	wantRun(t, spec, "CapInh: 0000000000000000\nCapPrm: 00000000a00425fb\nCapEff: 00000000a00425fb\nCapBnd: 00000000a00425fb\nCapAmb: 0000000000000000\nSeccomp: 2")
}

func TestFiles(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, `cat /run/secrets/key /run/tine/request.json; stat -c '%a %u' /run/secrets/key; (echo x > /run/secrets/key) 2>/dev/null || echo kept`)
	spec.Files = []File{{Path: "/run/secrets/key", Data: []byte("s3cret\n"), Mode: 0o400, UID: 7}, {Path: "/run/tine/request.json", Data: []byte("{}\n")}}
	wantRun(t, spec, "s3cret\n{}\n400 7\nkept")
	spec.Files = []File{{Path: "/etc/passwd"}}
	var bad *SpecError
	if _, err := Start(context.Background(), spec); !errors.As(err, &bad) {
		t.Errorf("a file in /etc: %v", err)
	}
}

// TestBinds: the caller may show single files and sockets of the host, also next to files of its own.
func TestBinds(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	os.Mkdir(filepath.Join(dir, "d"), 0o755)
	os.WriteFile(filepath.Join(dir, "f"), []byte("bound\n"), 0o644)
	spec := baseSpec(t, "cat /run/tine/f /run/tine/own; touch /run/tine/d/x 2>/dev/null || echo read-only; touch /tmp/w/y && ls /tmp/w")
	spec.Files = []File{{Path: "/run/tine/own", Data: []byte("own\n")}}
	spec.Binds = []Bind{{Source: dir + "/f", Target: "/run/tine/f"}, {Source: dir + "/d", Target: "/run/tine/d"}, {Source: dir + "/d", Target: "/tmp/w", Writable: true}}
	wantRun(t, spec, "bound\nown\nread-only\ny")
}

// TestView: what programs expect to find, and what they may do with it.
func TestView(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, `set -e
echo x > /dev/null; head -c4 /dev/urandom > /tmp/r; test $(stat -c %s /tmp/r) = 4; head -c 2 /dev/zero > /var/tmp/z
test -c /dev/full; test -c /dev/tty; test -d /dev/shm; echo s > /dev/shm/s; test -L /dev/ptmx
for d in /usr /etc /bin /; do if touch $d/x 2>/dev/null; then echo wrote $d; fi; done
test $$ -gt 1; test "$(cat /proc/1/comm)" = tine-init; test "$(hostname)" = tine
if [ -w /sys/class ]; then touch /sys/class/x 2>/dev/null && echo sys; fi
ls /run/docker.sock 2>/dev/null || true
stat -c %a /tmp /run | tr '\n' ' '
python3 -c 'import multiprocessing as m; m.Lock()' 2>/dev/null || true
sort --version >/dev/null; echo ok`)
	wantRun(t, spec, "1777 755 ok")
}

func TestS13_WritableHost(t *testing.T) {
	needRoot(t)
	dir, err := os.MkdirTemp("/var/lib", "tine-writable-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	spec := baseSpec(t, "echo new > "+dir+"/file; cat "+dir+"/file; test -d /dev/shm; pwd; grep CapEff /proc/self/status")
	spec.Hide = []string{dir}
	spec.WritableHost = true
	o := run(t, spec)
	if o.out != "new\n/workspace\nCapEff:\t00000000a00425fb\n" || o.report.Isolation != "host" || o.report.Home != "host" {
		t.Errorf("%+v", o)
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Error(err)
	}
}

// TestS13_SwappedHide: a path that became a symlink between planning and covering stops the run; nothing is covered
// elsewhere instead.
func TestS13_SwappedHide(t *testing.T) {
	dir := t.TempDir()
	os.MkdirAll(filepath.Join(dir, "real", "repo"), 0o755)
	os.Symlink("real", filepath.Join(dir, "link"))
	os.Symlink("repo", filepath.Join(dir, "real", "last"))
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	v := &view{root: root, blank: -1}
	for _, p := range []string{"/link/repo", "/real/last", "/real/../../etc"} {
		if covered, err := v.cover(p); covered || err == nil {
			t.Errorf("%s: %v, %v", p, covered, err)
		}
	}
	if covered, err := v.cover("/real/gone"); covered || err != nil {
		t.Errorf("what isn't there: %v, %v", covered, err)
	}
}

// TestS13_OtherForks: FUSE mounts of the host are not in the view, and building it asks their servers nothing.
func TestS13_OtherForks(t *testing.T) {
	needRoot(t)
	dir, err := os.MkdirTemp("/var/lib", "tine-fork-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeTree(t, dir) })
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(fuse) // nobody ever answers
	if err := unix.Mount("tine", dir, "fuse.tine", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse)); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	o := run(t, baseSpec(t, "grep -c ' - fuse' /proc/self/mountinfo; ls "+dir+"; echo done"))
	if o.out != "0\ndone\n" || !contains(o.report.Absent, dir) {
		t.Errorf("%+v", o)
	}
}

// TestNameServers runs in a mount namespace whose /etc/resolv.conf leads into /run, as systemd-resolved has it.
func TestNameServers(t *testing.T) {
	needRoot(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command("unshare", "-m", "--propagation", "private", "/bin/sh", "-ec", `
mount -t tmpfs upper "$1"; mkdir "$1/upper" "$1/work"
mount -t overlay -o "lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" etc /etc || exit 77
mount -t tmpfs run /run; mkdir -p /run/systemd/resolve
echo "nameserver 192.0.2.1" > /run/systemd/resolve/stub-resolv.conf
ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf
exec "$0" -test.run TestNameServersInner -test.v`, self, dir)
	cmd.Env = append(os.Environ(), "ISOLATE_TEST_RESOLV=1")
	out, err := cmd.CombinedOutput()
	if exit, ok := err.(*exec.ExitError); ok && exit.ExitCode() == 77 {
		t.Skipf("no overlay over /etc: %s", out)
	}
	if err != nil || !strings.Contains(string(out), "PASS: TestNameServersInner") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestNameServersInner(t *testing.T) {
	if os.Getenv("ISOLATE_TEST_RESOLV") == "" {
		t.Skip("run by TestNameServers")
	}
	wantRun(t, baseSpec(t, "cat /etc/resolv.conf; ls /run/systemd"), "nameserver 192.0.2.1\nresolve")
}
