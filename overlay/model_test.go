package overlay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"tine/snapshot/image"
)

// model is what a fork should be: a map of inodes with their whole contents.
type model struct {
	nodes map[uint64]*modelNode
}

type modelNode struct {
	mode    uint32
	nlink   uint32
	data    []byte
	target  string
	xattrs  map[string]string
	entries map[string]uint64
	parent  uint64
}

func (n *modelNode) isDir() bool { return n.mode&unix.S_IFMT == unix.S_IFDIR }

func newModel(m *memTree) *model {
	out := &model{nodes: map[uint64]*modelNode{}}
	for ino, b := range m.nodes {
		n := &modelNode{mode: b.Mode, nlink: b.Nlink, xattrs: map[string]string{}, parent: b.Parent}
		for _, x := range b.Xattrs {
			n.xattrs[x.Name] = string(x.Value)
		}
		switch b.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			n.entries = map[string]uint64{}
			for _, e := range m.entries[ino] {
				n.entries[e.Name] = e.Ino
			}
		case unix.S_IFLNK:
			n.target = string(m.bytes[b.Content])
		default:
			n.data = slices.Clone(m.bytes[b.Content])
		}
		out.nodes[ino] = n
	}
	return out
}

func (m *model) clone() *model {
	c := &model{nodes: map[uint64]*modelNode{}}
	for ino, n := range m.nodes {
		d := *n
		d.data = slices.Clone(n.data)
		d.xattrs = map[string]string{}
		for k, v := range n.xattrs {
			d.xattrs[k] = v
		}
		if n.entries != nil {
			d.entries = map[string]uint64{}
			for k, v := range n.entries {
				d.entries[k] = v
			}
		}
		c.nodes[ino] = &d
	}
	return c
}

// shape is the model as text, in the form of shapeOf.
func (m *model) shape() string {
	var b strings.Builder
	var walk func(path string, ino uint64)
	walk = func(path string, ino uint64) {
		n := m.nodes[ino]
		var xs []string
		for k, v := range n.xattrs {
			xs = append(xs, k+"="+v)
		}
		sort.Strings(xs)
		data := string(n.data)
		if n.mode&unix.S_IFMT == unix.S_IFLNK {
			data = n.target
		}
		writeShape(&b, path, ino, n.mode, n.nlink, data, xs)
		names := make([]string, 0, len(n.entries))
		for k := range n.entries {
			names = append(names, k)
		}
		sort.Strings(names)
		for _, k := range names {
			walk(path+"/"+k, n.entries[k])
		}
	}
	walk("", 1)
	return b.String()
}

func writeShape(b *strings.Builder, path string, ino uint64, mode, nlink uint32, data string, xattrs []string) {
	sum := contentID([]byte(data)).Digest
	fmt.Fprintf(b, "%s ino=%d mode=%o nlink=%d size=%d sum=%x %q\n", path, ino, mode, nlink, len(data), sum[:6], xattrs)
}

// shapeOf is what a tree shows, without times, owners and positions.
func shapeOf(e *env, files image.Files) string {
	e.t.Helper()
	var b strings.Builder
	var walk func(path string, ino uint64)
	walk = func(path string, ino uint64) {
		n, err := files.Node(ino)
		e.must(err)
		var xs []string
		for _, x := range n.Xattrs {
			xs = append(xs, x.Name+"="+string(x.Value))
		}
		data := ""
		if t := n.Mode & unix.S_IFMT; t == unix.S_IFREG || t == unix.S_IFLNK {
			r, err := files.OpenFile(n)
			e.must(err)
			buf := make([]byte, n.Size)
			if k, err := r.ReadAt(buf, 0); k != len(buf) {
				e.t.Fatalf("%s: read %d of %d: %v", path, k, len(buf), err)
			}
			r.Close()
			data = string(buf)
		}
		writeShape(&b, path, ino, n.Mode, n.Nlink, data, xs)
		if n.Mode&unix.S_IFMT != unix.S_IFDIR {
			return
		}
		var list []image.Dirent
		e.must(files.ReadDir(ino, 0, func(d image.Dirent) bool { list = append(list, d); return true }))
		sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
		for _, d := range list {
			walk(path+"/"+d.Name, d.Ino)
		}
	}
	walk("", image.Root)
	return b.String()
}

func (e *env) shape() string {
	e.t.Helper()
	v, err := e.f.View()
	e.must(err)
	defer v.Close()
	return shapeOf(e, v)
}

func (m *model) resize(n *modelNode, size int64) {
	if size <= int64(len(n.data)) {
		n.data = n.data[:size:size]
		return
	}
	n.data = append(n.data, make([]byte, size-int64(len(n.data)))...)
}

func (m *model) write(ino uint64, data []byte, off int64) {
	n := m.nodes[ino]
	if end := off + int64(len(data)); end > int64(len(n.data)) {
		m.resize(n, end)
	}
	copy(n.data[off:], data)
}

func (m *model) add(dir uint64, name string, ino uint64, mode uint32, target string) {
	n := &modelNode{mode: mode, nlink: 1, xattrs: map[string]string{}, target: target}
	if n.isDir() {
		n.nlink, n.entries, n.parent = 2, map[string]uint64{}, dir
		m.nodes[dir].nlink++
	}
	m.nodes[ino] = n
	m.nodes[dir].entries[name] = ino
}

func (m *model) unlink(dir uint64, name string) {
	ino := m.nodes[dir].entries[name]
	delete(m.nodes[dir].entries, name)
	n := m.nodes[ino]
	if n.isDir() {
		n.nlink = 0
		m.nodes[dir].nlink--
	} else {
		n.nlink--
	}
}

func (m *model) within(dir, top uint64) bool {
	for ; dir != top; dir = m.nodes[dir].parent {
		if dir == 1 {
			return false
		}
	}
	return true
}

// rename is renameat2, with its errno.
func (m *model) rename(od uint64, on string, nd uint64, nn string, flags uint32) unix.Errno {
	src := m.nodes[od].entries[on]
	if src == 0 {
		return unix.ENOENT
	}
	dst := m.nodes[nd].entries[nn]
	s, d := m.nodes[src], m.nodes[dst]
	switch {
	case flags == unix.RENAME_NOREPLACE && dst != 0:
		return unix.EEXIST
	case flags == unix.RENAME_EXCHANGE && dst == 0:
		return unix.ENOENT
	case src == dst:
		return 0
	case s.isDir() && m.within(nd, src):
		return unix.EINVAL
	}
	if flags == unix.RENAME_EXCHANGE {
		if d.isDir() && m.within(od, dst) {
			return unix.EINVAL
		}
		m.nodes[od].entries[on], m.nodes[nd].entries[nn] = dst, src
		for _, x := range []struct {
			n        *modelNode
			from, to uint64
		}{{s, od, nd}, {d, nd, od}} {
			if x.n.isDir() {
				m.nodes[x.from].nlink--
				m.nodes[x.to].nlink++
				x.n.parent = x.to
			}
		}
		return 0
	}
	if dst != 0 {
		switch {
		case s.isDir() && !d.isDir():
			return unix.ENOTDIR
		case !s.isDir() && d.isDir():
			return unix.EISDIR
		case d.isDir() && len(d.entries) > 0:
			return unix.ENOTEMPTY
		}
		m.unlink(nd, nn)
	}
	delete(m.nodes[od].entries, on)
	m.nodes[nd].entries[nn] = src
	if s.isDir() {
		m.nodes[od].nlink--
		m.nodes[nd].nlink++
		s.parent = nd
	}
	return 0
}

// pick chooses among the inodes that have names, in a fixed order.
func (m *model) pick(r *rand.Rand, want func(*modelNode) bool) uint64 {
	var list []uint64
	for ino, n := range m.nodes {
		if n.nlink > 0 && want(n) {
			list = append(list, ino)
		}
	}
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[r.IntN(len(list))]
}

func (m *model) pickDir(r *rand.Rand) uint64 { return m.pick(r, (*modelNode).isDir) }
func (m *model) pickFile(r *rand.Rand) uint64 {
	return m.pick(r, func(n *modelNode) bool { return n.mode&unix.S_IFMT == unix.S_IFREG })
}

// pickEntry chooses a directory and a name in it that is mostly there.
func (m *model) pickEntry(r *rand.Rand) (uint64, string) {
	dir := m.pickDir(r)
	var names []string
	for k := range m.nodes[dir].entries {
		names = append(names, k)
	}
	if len(names) == 0 || r.IntN(8) == 0 {
		return dir, "none"
	}
	sort.Strings(names)
	return dir, names[r.IntN(len(names))]
}
