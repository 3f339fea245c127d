package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tine/snapshot/content"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

func needRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: owners, devices and trusted attributes are set")
	}
}

// tooDeep levels of 200 bytes are longer than PATH_MAX.
const tooDeep = 30

// sparseFiles serves one content with holes, which imagetest's contents don't have.
type sparseFiles struct {
	*imagetest.Tree
	ino  uint64
	data []byte
}

type sparseReader struct {
	content.Reader
	data []byte
}

func (r sparseReader) NextData(off int64) (int64, int64) {
	n := int64(len(r.data))
	for off < n && content.IsZero(r.data[off:min(off+4096, n)]) {
		off += 4096
	}
	if off >= n {
		return n, n
	}
	end := off
	for end < n && !content.IsZero(r.data[end:min(end+4096, n)]) {
		end += 4096
	}
	return off, min(end, n)
}

func (f *sparseFiles) OpenFile(n image.Node) (content.Reader, error) {
	r, err := f.Tree.OpenFile(n)
	if err == nil && n.Ino == f.ino {
		r = sparseReader{r, f.data}
	}
	return r, err
}

func sample(t *testing.T, levels int) *sparseFiles {
	holes := make([]byte, 1<<20+100)
	copy(holes[40960:], strings.Repeat("data", 3000))
	holes[len(holes)-1] = 1
	own := func(uid, gid uint32) func(*image.Node) {
		return func(n *image.Node) { n.UID, n.GID, n.Mtime = uid, gid, image.Time{Sec: -5, Nsec: 123456789} }
	}
	deep := strings.Repeat(strings.Repeat("d", 200)+"/", levels)
	tree := imagetest.Build(t,
		imagetest.Dir("", 0o751).With(own(1, 2)),
		imagetest.File("a", "one", 0o4755).With(own(1000, 1001)),
		imagetest.File("b", strings.Repeat("x", 300000), 0o600),
		imagetest.File("holes", string(holes), 0o644),
		imagetest.File("locked/in/f", "in", 0o000).With(own(7, 7)),
		imagetest.Dir("zdir", 0o1777).With(own(0, 5)),
		imagetest.File("\xff\xfe\n", "not UTF-8", 0o644),
		imagetest.File(strings.Repeat("n", 255), "", 0o644),
		imagetest.Symlink("link", "../out\xff/of").With(own(33, 33)),
		imagetest.Symlink("trusted", "x").With(func(n *image.Node) {
			n.Xattrs = []image.Xattr{{Name: "trusted.l", Value: []byte("of a symlink")}}
		}),
		imagetest.File("x", "attributes", 0o755).With(func(n *image.Node) {
			n.Xattrs = []image.Xattr{
				{Name: "security.capability", Value: []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")},
				{Name: "trusted.t", Value: []byte{0, 1, 2}},
				{Name: "user.u", Value: []byte("v=\n")},
			}
		}),
		imagetest.Special("fifo", modeFIFO|0o640, 0).With(own(3, 4)),
		imagetest.Special("sock", modeSocket|0o755, 0),
		imagetest.Special("dev/null", modeChar|0o666, 1<<8|3),
		imagetest.Special("dev/disk", modeBlock|0o600, 259<<8|0x45|7<<20),
		imagetest.File(deep+"f", "deep", 0o644),
		imagetest.Hardlink("hard", deep+"f"),
		imagetest.Hardlink("hard2", deep+"f"),
		imagetest.Hardlink("fifo2", "fifo"),
		imagetest.Hardlink("zdir/link2", "link"),
	)
	return &sparseFiles{tree, tree.Inos["holes"], holes}
}

// describe lists what a tree has, one line for each name, in terms that a directory can be read back in.
func describe(t *testing.T, f image.Files, skip func(n image.Node) bool) []string {
	var lines []string
	names := map[uint64]int{}
	var walk func(dir uint64, path string)
	walk = func(dir uint64, path string) {
		entries, err := list(f, dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range entries {
			n, err := f.Node(d.Ino)
			if err != nil {
				t.Fatal(err)
			}
			if skip(n) {
				continue
			}
			p := path + "/" + d.Name
			id, seen := names[d.Ino]
			if !seen {
				id = len(names)
				names[d.Ino] = id
			}
			line := fmt.Sprintf("%q #%d %o %d:%d %d.%09d", p, id, n.Mode, n.UID, n.GID, n.Mtime.Sec, n.Mtime.Nsec)
			for _, x := range n.Xattrs {
				line += fmt.Sprintf(" %s=%x", x.Name, x.Value)
			}
			switch n.Mode & modeType {
			case modeRegular, modeSymlink:
				r, err := f.OpenFile(n)
				if err != nil {
					t.Fatal(err)
				}
				b, err := content.ReadAll(r, 1<<30)
				if err != nil {
					t.Fatal(err)
				}
				line += " " + content.BlobID(b, content.SHA1).String()
			case modeChar, modeBlock:
				line += fmt.Sprintf(" dev %x", n.Rdev)
			}
			lines = append(lines, line)
			if n.Mode&modeType == modeDir {
				walk(d.Ino, p)
			}
		}
	}
	walk(image.Root, "")
	return lines
}

// dirTree reads a directory as describe does, stepping so that long paths work.
func describeDir(t *testing.T, dir string) []string {
	var lines []string
	names := map[uint64]int{}
	var walk func(fd int, path string)
	walk = func(fd int, path string) {
		here := fmt.Sprintf("/proc/self/fd/%d", fd)
		ents, err := os.ReadDir(here)
		if err != nil {
			t.Fatal(err)
		}
		sort.Slice(ents, func(i, j int) bool { return ents[i].Name() < ents[j].Name() })
		for _, e := range ents {
			var st unix.Stat_t
			at := here + "/" + e.Name()
			if err := unix.Lstat(at, &st); err != nil {
				t.Fatal(err)
			}
			id, seen := names[st.Ino]
			if !seen {
				id = len(names)
				names[st.Ino] = id
			}
			line := fmt.Sprintf("%q #%d %o %d:%d %d.%09d", path+"/"+e.Name(), id, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
			buf := make([]byte, 4096)
			n, err := unix.Llistxattr(at, buf)
			if err != nil {
				t.Fatal(err)
			}
			keys := strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00")
			sort.Strings(keys)
			for _, k := range keys {
				if k == "" {
					continue
				}
				v := make([]byte, 4096)
				n, err := unix.Lgetxattr(at, k, v)
				if err != nil {
					t.Fatal(err)
				}
				line += fmt.Sprintf(" %s=%x", k, v[:n])
			}
			switch st.Mode & modeType {
			case modeRegular:
				b, err := os.ReadFile(at)
				if err != nil {
					t.Fatal(err)
				}
				line += " " + content.BlobID(b, content.SHA1).String()
			case modeSymlink:
				target, err := os.Readlink(at)
				if err != nil {
					t.Fatal(err)
				}
				line += " " + content.BlobID([]byte(target), content.SHA1).String()
			case modeChar, modeBlock:
				line += fmt.Sprintf(" dev %x", st.Rdev)
			}
			lines = append(lines, line)
			if e.IsDir() {
				sub, err := unix.Open(at, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
				if err != nil {
					t.Fatal(err)
				}
				walk(sub, path+"/"+e.Name())
				unix.Close(sub)
			}
		}
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	walk(fd, "")
	return lines
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("got  %.300s\nwant %.300s", g, w)
		}
	}
}

func nothing(image.Node) bool { return false }

func TestExportedDirectoryIsTheTree(t *testing.T) {
	needRoot(t)
	f := sample(t, tooDeep)
	dir := filepath.Join(t.TempDir(), "out")
	if err := ToDir(context.Background(), f, dir, Options{Devices: true}); err != nil {
		t.Fatal(err)
	}
	same(t, describeDir(t, dir), describe(t, f, nothing))
	var st unix.Stat_t
	unix.Stat(dir, &st)
	if st.Mode&0o7777 != 0o751 || st.Uid != 1 || st.Mtim.Sec != -5 {
		t.Errorf("the top directory: %o %d %v", st.Mode, st.Uid, st.Mtim)
	}
	unix.Stat(filepath.Join(dir, "holes"), &st)
	if st.Blocks*512 > 600<<10 {
		t.Errorf("%d KiB of blocks for a file of 12,000 bytes of data", st.Blocks/2)
	}
}

func TestExportSkipsDevicesUnlessAsked(t *testing.T) {
	needRoot(t)
	f := sample(t, tooDeep)
	dir := t.TempDir() // an empty directory may be there
	var skipped []string
	opt := Options{Skipped: func(path, why string) { skipped = append(skipped, path+": "+why) }}
	if err := ToDir(context.Background(), f, dir, opt); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(skipped) != "[dev/disk: device node dev/null: device node]" {
		t.Error(skipped)
	}
	for _, l := range describeDir(t, dir) {
		if strings.Contains(l, " dev ") {
			t.Error(l)
		}
	}
}

func TestExportThatFailsLeavesNothing(t *testing.T) {
	f := sample(t, tooDeep)
	n, _ := f.Node(f.Inos["b"])
	f.Contents.Remove(n.Content)
	parent := t.TempDir()
	var missing *content.MissingError
	if err := ToDir(context.Background(), f, filepath.Join(parent, "out"), Options{}); !errors.As(err, &missing) {
		t.Fatal(err)
	}
	if ents, _ := os.ReadDir(parent); len(ents) != 0 {
		t.Fatal(ents)
	}
	os.WriteFile(filepath.Join(parent, "precious"), nil, 0o644)
	if err := ToDir(context.Background(), f, parent, Options{}); !errors.Is(err, unix.ENOTEMPTY) {
		t.Fatal(err)
	}
	if err := ToTar(context.Background(), f, new(bytes.Buffer), Options{}); !errors.As(err, &missing) {
		t.Fatal(err)
	}
}

// System tar makes the same tree of the archive as ToDir, sockets apart.
func TestExportedTarIsTheTree(t *testing.T) {
	needRoot(t)
	f := sample(t, 10)
	var one, two bytes.Buffer
	for _, b := range []*bytes.Buffer{&one, &two} {
		if err := ToTar(context.Background(), f, b, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("two archives of one tree differ")
	}
	if one.Len() > 700<<10 {
		t.Errorf("archive of %d bytes: holes were written", one.Len())
	}
	dir := t.TempDir()
	cmd := exec.Command("tar", "-C", dir, "--xattrs", "--xattrs-include=*", "--numeric-owner", "-xpf", "-")
	cmd.Stdin = &one
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	same(t, describeDir(t, dir), describe(t, f, func(n image.Node) bool { return n.Mode&modeType == modeSocket }))
}

// keepingFiles opens a file at the first content and keeps it open, as a store does with its segments.
type keepingFiles struct {
	*imagetest.Tree
	path string
	kept *os.File
}

func (f *keepingFiles) OpenFile(n image.Node) (content.Reader, error) {
	if f.kept == nil {
		var err error
		if f.kept, err = os.Open(f.path); err != nil {
			return nil, err
		}
	}
	return f.Tree.OpenFile(n)
}

// TestExportClosesItsOwnDescriptorsOnly: a directory's descriptor is closed once, although its subdirectories step back to
// it by another. Else it is somebody else's by then, who is given the directory's mode and is closed.
func TestExportClosesItsOwnDescriptorsOnly(t *testing.T) {
	f := &keepingFiles{Tree: imagetest.Build(t, imagetest.Symlink("d/sub/link", "target"), imagetest.File("d/sub2/f", "x", 0o644)), path: filepath.Join(t.TempDir(), "segment")}
	if err := os.WriteFile(f.path, []byte("segment"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ToDir(context.Background(), f, filepath.Join(t.TempDir(), "out"), Options{}); err != nil {
		t.Fatal(err)
	}
	defer f.kept.Close()
	st, err := f.kept.Stat()
	if err != nil || st.Name() != "segment" || st.Mode() != 0o600 {
		t.Errorf("%+v, %v", st, err)
	}
	b := make([]byte, 7)
	if _, err := f.kept.ReadAt(b, 0); err != nil || string(b) != "segment" {
		t.Errorf("%q, %v", b, err)
	}
}
