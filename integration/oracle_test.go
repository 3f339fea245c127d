package integration

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ext4 gives a directory on ext4: the scratch directory itself where it is on one, else a fresh loop image.
func (l *lab) ext4(name string) string {
	l.t.Helper()
	var fs unix.Statfs_t
	l.must(unix.Statfs(l.dir, &fs))
	if fs.Type == unix.EXT4_SUPER_MAGIC {
		return l.mkdir(name)
	}
	return filepath.Join(l.loopExt4(name, "3G"), "d")
}

// loopExt4 mounts a new ext4 of a size and returns its mount point, which holds a directory "d".
func (l *lab) loopExt4(name, size string) string {
	l.t.Helper()
	requireTools(l.t, "mkfs.ext4", "losetup")
	m := l.mkdir(name)
	l.shell(l.dir, fmt.Sprintf(`truncate -s %s %[2]s.img; mkfs.ext4 -q -m 0 %[2]s.img; mount -o loop %[2]s.img %[2]s; mkdir %[2]s/d`, size, name))
	l.t.Cleanup(func() { _ = unix.Unmount(m, unix.MNT_DETACH) })
	return m
}

// TestOracle_RandomOperations runs opfuzz.py, which compares results and whole trees with ext4, allows no
// difference, and looks again after the server was killed and the fork mounted anew. Two of its options are not used:
// --holes, because the kernel answers for FUSE directories and ext4 counts unwritten extents as holes (case 42 checks
// holes), and --ino-stable, because ext4 uses the inode number of a removed file again and a fork never does.
func TestOracle_RandomOperations(t *testing.T) {
	requireTools(t, "python3")
	seeds, operations := 2, 600
	if *long {
		seeds, operations = 5, 1000
	}
	for seed := 1; seed <= seeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			l := newLab(t)
			fuzz, err := filepath.Abs("oracles/opfuzz.py")
			l.must(err)
			ref := filepath.Join(l.ext4("ext4"), "ref")
			l.shell(l.dir, "python3 '"+fuzz+"' mktree '"+ref+"'")
			fork := l.fork(l.importDir(ref).Checkpoint)
			m := l.path("m")
			s := l.mount(fork, m)
			// opfuzz asks for the remount by one pipe and is told by another.
			l.shell(l.dir, "mkfifo ask told")
			go func() {
				f, err := os.Open(l.path("ask"))
				if err != nil {
					return
				}
				defer f.Close()
				if b, _ := bufio.NewReader(f).ReadByte(); b != 'k' {
					return
				}
				s.kill9()
				_ = unix.Unmount(m, unix.MNT_DETACH)
				s = l.mount(fork, m)
				_ = os.WriteFile(l.path("told"), []byte("done"), 0)
			}()
			r := command(t, exec.Command("python3", fuzz, ref, m, fmt.Sprint(seed), fmt.Sprint(operations),
				"--acl", "--tmpfile", "--dino", "--dir-nlink", "--keep-going", "8",
				"--log", l.path("operations.jsonl"),
				"--remount", "echo k >'"+l.path("ask")+"'; cat '"+l.path("told")+"' >/dev/null"))
			if r.status != 0 {
				t.Errorf("opfuzz: %v", r)
			}
			if f, err := os.OpenFile(l.path("ask"), os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				f.Close()
			}
			t.Log(strings.TrimSpace(lastLine(r.stdout)))
			s.stop()
		})
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// TestOracle_RealWorkloads runs differential.sh: the same real programs in a fork and on ext4.
func TestOracle_RealWorkloads(t *testing.T) {
	requireTools(t, "bash", "python3", "rsync", "rg", "sqlite3", "git", "gcc", "make", "npm", "node", "go", "setfattr",
		"openssl", "bc", "patch", "flock", "setpriv", "unshare", "ar")
	l := newLab(t)
	// The short form leaves out what takes longest; building Go programs is in the tests of runs too.
	var workloads []string
	if !*long {
		workloads = strings.Fields("shell tar rsync rg sqlite git gitlower gcc venv npm mmapdb rmall")
	}
	script, err := filepath.Abs("oracles/differential.sh")
	l.must(err)
	differential := func(args ...string) result {
		cmd := exec.Command("bash", append([]string{script}, args...)...)
		cmd.Env = append(os.Environ(), "TMPDIR="+l.dir, "LOGS="+l.path("logs"), "DUT="+l.mkdir("dut"), "CACHE="+l.mkdir("cache"))
		return command(t, cmd)
	}
	ref := filepath.Join(l.ext4("ext4"), "ref")
	if r := differential("--prepare", ref); r.status != 0 {
		t.Fatal(r)
	}
	fork := l.fork(l.importDir(ref).Checkpoint)
	m := l.path("m")
	s := l.mount(fork, m)
	r := differential(append([]string{ref, m}, workloads...)...)
	if r.status != 0 {
		t.Errorf("differential: %v", r)
	}
	t.Logf("\n%s", r.stdout)
	l.shell(l.dir, "chmod -R u+w cache")
	s.stop()
}
