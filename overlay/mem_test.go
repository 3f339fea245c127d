package overlay

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"tine/snapshot/content"
	"tine/snapshot/image"
)

// memTree is a base in memory: an image.Tree, and the content.Opener of its contents.
type memTree struct {
	nodes   map[uint64]image.Node
	entries map[uint64][]image.Dirent
	next    uint64

	mu    sync.Mutex
	bytes map[content.ID][]byte
	opens int
}

func contentID(b []byte) content.ID {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(b))
	h.Write(b)
	id := content.ID{Algo: content.GitSHA1}
	copy(id.Digest[:], h.Sum(nil))
	return id
}

var baseTime = image.Time{Sec: 1_500_000_000, Nsec: 123_456_789}

func newMemTree() *memTree {
	m := &memTree{nodes: map[uint64]image.Node{}, entries: map[uint64][]image.Dirent{}, next: 2, bytes: map[content.ID][]byte{}}
	m.nodes[1] = image.Node{Ino: 1, Mode: unix.S_IFDIR | 0755, Nlink: 2, Parent: 1, Mtime: baseTime, Ctime: baseTime, Btime: baseTime}
	return m
}

// add makes path: a directory if it ends in a slash, a symlink if data begins with "->", else a file.
func (m *memTree) add(path, data string) uint64 {
	dir := uint64(1)
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	for i, p := range parts {
		if e, ok := m.find(dir, p); ok {
			dir = e.Ino
			continue
		}
		n := image.Node{Ino: m.next, Nlink: 1, Mtime: baseTime, Ctime: baseTime, Btime: baseTime}
		m.next++
		switch {
		case i < len(parts)-1 || strings.HasSuffix(path, "/"):
			n.Mode, n.Nlink, n.Parent = unix.S_IFDIR|0755, 2, dir
			d := m.nodes[dir]
			d.Nlink++
			m.nodes[dir] = d
		case strings.HasPrefix(data, "->"):
			n.Mode = unix.S_IFLNK | 0777
			m.fill(&n, []byte(data[2:]))
		default:
			n.Mode = unix.S_IFREG | 0644
			m.fill(&n, []byte(data))
		}
		m.nodes[n.Ino] = n
		m.name(dir, p, n.Ino, n.Mode)
		dir = n.Ino
	}
	return dir
}

func (m *memTree) fill(n *image.Node, b []byte) {
	n.Size, n.Content = int64(len(b)), contentID(b)
	m.bytes[n.Content] = b
}

func (m *memTree) name(dir uint64, name string, ino uint64, mode uint32) {
	l := append(m.entries[dir], image.Dirent{Name: name, Ino: ino, Type: uint8(mode >> 12 & 15)})
	sort.Slice(l, func(i, j int) bool { return l[i].Name < l[j].Name })
	for i := range l {
		l[i].Pos = uint64(i + 1)
	}
	m.entries[dir] = l
}

func (m *memTree) find(dir uint64, name string) (image.Dirent, bool) {
	for _, e := range m.entries[dir] {
		if e.Name == name {
			return e, true
		}
	}
	return image.Dirent{}, false
}

func (m *memTree) Node(ino uint64) (image.Node, error) {
	n, ok := m.nodes[ino]
	if !ok {
		return n, image.ErrNotExist
	}
	return n, nil
}

func (m *memTree) Lookup(dir uint64, name string) (image.Dirent, error) {
	e, ok := m.find(dir, name)
	if !ok {
		return e, image.ErrNotExist
	}
	return e, nil
}

func (m *memTree) ReadDir(dir, after uint64, yield func(image.Dirent) bool) error {
	for _, e := range m.entries[dir] {
		if e.Pos > after && !yield(e) {
			break
		}
	}
	return nil
}

func (m *memTree) NumEntries(dir uint64) (int, error) { return len(m.entries[dir]), nil }
func (m *memTree) NextIno() uint64                    { return m.next }
func (m *memTree) Counts() (inodes, bytes uint64) {
	for _, n := range m.nodes {
		if n.Mode&unix.S_IFMT == unix.S_IFREG {
			bytes += uint64(n.Size)
		}
	}
	return uint64(len(m.nodes)), bytes
}

type memReader struct{ *bytes.Reader }

func (memReader) Close() error { return nil }

func (m *memTree) Open(id content.ID) (content.Reader, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opens++
	b, ok := m.bytes[id]
	if !ok {
		return nil, &content.MissingError{ID: id}
	}
	return memReader{bytes.NewReader(b)}, nil
}

// testClock gives times that differ from call to call.
type testClock struct {
	mu sync.Mutex
	n  int64
}

func (c *testClock) now() image.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return image.Time{Sec: 1_700_000_000 + c.n, Nsec: uint32(c.n % 1000)}
}

// sampleTree is a small base with all kinds of inodes.
func sampleTree() *memTree {
	m := newMemTree()
	m.add("a", "content of a")
	m.add("dir/b", strings.Repeat("0123456789", 1000))
	m.add("dir/sub/c", "c")
	m.add("empty", "")
	m.add("emptydir/", "")
	m.add("link", "->dir/b")
	m.add("big", strings.Repeat("base content ", 20_000))
	ino := m.add("hard1", "two names")
	n := m.nodes[ino]
	n.Nlink = 2
	m.nodes[ino] = n
	m.name(1, "hard2", ino, n.Mode)
	x := m.nodes[m.add("attrs", "x")]
	x.Xattrs = []image.Xattr{{Name: "user.one", Value: []byte("1")}, {Name: "user.two", Value: []byte("2")}}
	m.nodes[x.Ino] = x
	return m
}

// env is a fork under test.
type env struct {
	t    testing.TB
	base *memTree
	cfg  Config
	f    *Fork
}

func newEnv(t testing.TB, base *memTree) *env {
	t.Helper()
	clock := new(testClock)
	e := &env{t: t, base: base, cfg: Config{
		Base: base, Contents: base, LayersDir: t.TempDir(), Layers: []LayerID{NewLayerID()},
		ForkID: "fork", BaseID: "base", Now: clock.now,
	}}
	e.open()
	t.Cleanup(func() {
		if e.f != nil {
			e.close()
		}
	})
	return e
}

func (e *env) open() {
	e.t.Helper()
	f, err := Open(e.cfg)
	if err != nil {
		e.t.Fatalf("open: %v", err)
	}
	e.f = f
	e.check()
}

func (e *env) close() {
	e.t.Helper()
	e.check()
	if err := e.f.Close(); err != nil {
		e.t.Fatalf("close: %v", err)
	}
	e.f = nil
}

func (e *env) reopen() {
	e.t.Helper()
	e.close()
	e.open()
}

func (e *env) check() {
	e.t.Helper()
	if err := e.f.CheckInvariants(); err != nil {
		e.t.Fatalf("invariants: %v", err)
	}
}

var root = Caller{}

// ino resolves a path.
func (e *env) ino(path string) uint64 {
	e.t.Helper()
	a, err := e.lookup(path)
	if err != nil {
		e.t.Fatalf("%s: %v", path, err)
	}
	return a.Ino
}

func (e *env) lookup(path string) (Attr, error) {
	a, err := e.f.Getattr(1)
	for _, p := range strings.Split(strings.Trim(path, "/"), "/") {
		if p == "" {
			continue
		}
		if err != nil {
			return a, err
		}
		a, err = e.f.Lookup(a.Ino, p)
	}
	return a, err
}

func (e *env) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) wantErr(err error, want unix.Errno) {
	e.t.Helper()
	if Errno(err) != want {
		e.t.Fatalf("got %v, want %v", err, want)
	}
}

func (e *env) put(dir uint64, name, data string) uint64 {
	e.t.Helper()
	a, err := e.f.Create(root, dir, name, 0644, true)
	e.must(err)
	if data != "" {
		_, err = e.f.Write(root, a.Ino, []byte(data), 0, false)
		e.must(err)
	}
	return a.Ino
}

func (e *env) read(ino uint64) string {
	e.t.Helper()
	a, err := e.f.Getattr(ino)
	e.must(err)
	b := make([]byte, a.Size+1)
	n, err := e.f.Read(ino, b, 0)
	e.must(err)
	if int64(n) != a.Size {
		e.t.Fatalf("read %d bytes of %d", n, a.Size)
	}
	return string(b[:n])
}

func (e *env) names(dir uint64) []string {
	e.t.Helper()
	var list []string
	e.must(e.f.ReadDir(dir, 0, func(d Dirent, _ func() (Attr, bool)) bool {
		list = append(list, d.Name)
		return true
	}))
	return list
}

// dump is everything that a tree shows, as text.
func dump(t testing.TB, files image.Files) string {
	t.Helper()
	var b strings.Builder
	var walk func(path string, ino uint64)
	walk = func(path string, ino uint64) {
		n, err := files.Node(ino)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		fmt.Fprintf(&b, "%s %d %o %d %d:%d %x size=%d m=%v c=%v b=%v parent=%d", path, n.Ino, n.Mode, n.Nlink, n.UID, n.GID, n.Rdev, n.Size, n.Mtime, n.Ctime, n.Btime, n.Parent)
		for _, x := range n.Xattrs {
			fmt.Fprintf(&b, " %s=%q", x.Name, x.Value)
		}
		switch n.Mode & unix.S_IFMT {
		case unix.S_IFREG, unix.S_IFLNK:
			r, err := files.OpenFile(n)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			data, err := io.ReadAll(io.NewSectionReader(r, 0, n.Size+10))
			if err != nil || int64(len(data)) != n.Size {
				t.Fatalf("%s: read %d of %d: %v", path, len(data), n.Size, err)
			}
			r.Close()
			if len(data) < 100 {
				fmt.Fprintf(&b, " %q\n", data)
			} else {
				fmt.Fprintf(&b, " %x\n", sha1.Sum(data))
			}
		case unix.S_IFDIR:
			b.WriteByte('\n')
			var list []image.Dirent
			if err := files.ReadDir(ino, 0, func(d image.Dirent) bool { list = append(list, d); return true }); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if !slices.IsSortedFunc(list, func(a, b image.Dirent) int { return int(int64(a.Pos) - int64(b.Pos)) }) {
				t.Fatalf("%s: positions not in order: %v", path, list)
			}
			sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
			for _, d := range list {
				fmt.Fprintf(&b, "  pos %d ", d.Pos)
				walk(path+"/"+d.Name, d.Ino)
			}
		default:
			b.WriteByte('\n')
		}
	}
	walk("", image.Root)
	return b.String()
}

func (e *env) dump() string {
	e.t.Helper()
	v, err := e.f.View()
	e.must(err)
	defer v.Close()
	return dump(e.t, v)
}
