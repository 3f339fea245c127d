package isolate

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// homeOnDisk makes a home directory outside of what is private in a view anyway.
func homeOnDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/lib", "tine-home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeTree(t, dir) })
	for name, data := range map[string]string{".profile": "profile\n", "work/repo/secret": marker, "work/other": "other\n"} {
		os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	os.Chown(dir, 1234, 1235)
	os.Chmod(dir, 0o711)
	return dir
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	filepath.Walk(dir, func(p string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		out = append(out, p, info.Mode().String(), info.ModTime().String())
		return nil
	})
	return strings.Join(out, " ")
}

const homeScript = `cd $HOME; stat -c '%a %u %g' .; cat .profile work/other; ls -A work/repo; echo changed > .profile; mkdir -p .cache/x && echo new > .cache/x/y && rm work/other && cat .profile .cache/x/y; ls work
mv work/repo work/elsewhere 2>/dev/null && echo moved; rm -rf work 2>/dev/null; find . -name secret; echo end`

const homeWant = "711 1234 1235\nprofile\nother\nchanged\nnew\nrepo\nend"

// TestS13_PrivateHome: the program sees the host's home directory, less what is hidden; what it does there stays in the run.
func TestS13_PrivateHome(t *testing.T) {
	needRoot(t)
	home := homeOnDisk(t)
	before := listing(t, home)
	scratch, err := os.MkdirTemp("/var/lib", "tine-scratch-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(scratch)
	spec := baseSpec(t, homeScript)
	spec.Env = append(spec.Env, "HOME="+home)
	spec.Home.Path, spec.Hide, spec.Scratch = home, []string{filepath.Join(home, "work/repo")}, scratch
	o := run(t, spec)
	if strings.TrimSpace(o.out) != homeWant || o.report.Home != "overlay" {
		t.Errorf("%+v", o)
	}
	if listing(t, home) != before {
		t.Error("the host's home directory changed")
	}
	if e, _ := os.ReadDir(scratch); len(e) != 0 {
		t.Errorf("left %v", e)
	}
}

// TestS13_HomeOverItsStore: the store may lie in the home directory.
func TestS13_HomeOverItsStore(t *testing.T) {
	needRoot(t)
	home := homeOnDisk(t)
	spec := baseSpec(t, homeScript+"; ls -A store")
	spec.Env = append(spec.Env, "HOME="+home)
	spec.Scratch = filepath.Join(home, "store", "tmp")
	os.MkdirAll(spec.Scratch, 0o700)
	os.Chmod(home, 0o711)
	spec.Home.Path, spec.Hide = home, []string{filepath.Join(home, "work/repo"), filepath.Join(home, "store")}
	if o := run(t, spec); strings.TrimSpace(o.out) != homeWant || o.report.Home != "overlay" {
		t.Errorf("%+v", o)
	}
}

// TestS13_HomeInMemory: a scratch directory on a file system that can't hold an upper layer.
func TestS13_HomeInMemory(t *testing.T) {
	needRoot(t)
	home := homeOnDisk(t)
	spec := baseSpec(t, homeScript)
	spec.Env = append(spec.Env, "HOME="+home)
	spec.Scratch = t.TempDir()
	layers := t.TempDir()
	for _, d := range []string{"lower", "upper", "work"} {
		os.Mkdir(filepath.Join(layers, d), 0o755)
	}
	if err := unix.Mount("o", spec.Scratch, "overlay", 0, "lowerdir="+layers+"/lower,upperdir="+layers+"/upper,workdir="+layers+"/work"); err != nil {
		t.Skip(err)
	}
	defer unix.Unmount(spec.Scratch, unix.MNT_DETACH)
	spec.Home.Path, spec.Hide = home, []string{filepath.Join(home, "work/repo")}
	before := listing(t, filepath.Join(home, "work"))
	o := run(t, spec)
	if strings.TrimSpace(o.out) != homeWant || o.report.Home != "overlay-memory" || o.report.HomeReason == "" {
		t.Errorf("%+v", o)
	}
	if listing(t, filepath.Join(home, "work")) != before {
		t.Error("the host's home directory changed")
	}
}

func TestS13_EmptyHome(t *testing.T) {
	needRoot(t)
	home := homeOnDisk(t)
	for _, c := range []struct {
		path, want string
		mode       HomeMode
	}{{home, "empty", HomeEmpty}, {"/no-such-home", "empty", HomePrivate}, {"/run/user-home", "empty", HomePrivate}, {"/usr/no-such-home/x", "none", HomePrivate}, {"", "none", HomePrivate}, {"/", "none", HomePrivate}} {
		spec := baseSpec(t, `ls -A "$HOME" && touch "$HOME/file" && rm "$HOME/file" && echo ok`)
		spec.Env = append(spec.Env, "HOME="+c.path)
		spec.Home = Home{c.path, c.mode}
		o := run(t, spec)
		if o.report.Home != c.want || o.report.HomeReason == "" || c.want == "empty" && o.out != "ok\n" {
			t.Errorf("%q: %+v", c.path, o)
		}
	}
}

// TestS13_HomeSockets: a socket in the home directory leads nowhere, also one that is bound while the program runs.
func TestS13_HomeSockets(t *testing.T) {
	needRoot(t)
	home := homeOnDisk(t)
	name := filepath.Join(home, "agent.sock")
	spec := attackSpec(t, "sockets", target{Sockets: []string{name}}, nil, 0)
	spec.Args = append([]string{"/bin/sh", "-c", `touch /workspace/ready; while [ ! -e /workspace/bound ]; do sleep 0.02; done; ls "$0"; exec "$@"`, name}, spec.Args...)
	spec.Home.Path = home
	ws := spec.Workspaces[0].Path
	go func() {
		waitFor(t, filepath.Join(ws, "ready"))
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { l.Close() })
		os.WriteFile(filepath.Join(ws, "bound"), nil, 0o644)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, marker)
			c.Close()
		}
	}()
	wantRun(t, spec, name+"\nattack done")
}

// TestS13_HomeIsTheSource: also when the home directory is named through a symlink.
func TestS13_HomeIsTheSource(t *testing.T) {
	needRoot(t)
	home := homeOnDisk(t)
	link := home + "-link"
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(link)
	for _, c := range [][2]string{{home, home}, {link, home}, {home, link}, {home, "/var/lib"}, {home, "/usr"}, {home, "/"}} {
		spec := baseSpec(t, "true")
		spec.Home.Path, spec.Hide = c[0], []string{c[1]}
		_, err := Start(context.Background(), spec)
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Rule != "S13" {
			t.Errorf("home %s, source %s: %v", c[0], c[1], err)
		}
		spec.WritableHost = true
		if o := run(t, spec); o.status.Code != 0 || o.report.Isolation != "host" {
			t.Errorf("with the isolation lifted: %+v", o)
		}
	}
}
