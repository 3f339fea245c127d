// Package imagetest makes small tree images, and the contents that go with them, for tests.
package imagetest

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"sync"
	"testing"

	"tine/snapshot/content"
	"tine/snapshot/durable"
	"tine/snapshot/image"
)

// Epoch is every time of a node that a test doesn't set: 2020-01-01 00:00:00.5 UTC.
var Epoch = image.Time{Sec: 1577836800, Nsec: 5e8}

// Entry is one path of a tree: a new node, or a further name of one.
type Entry struct {
	Path string // slashes, no leading one; "" is the root
	Node image.Node
	Data string // of files and symlinks
	Link string // the path whose node this is another name of
}

// File is a regular file; perm has permission bits only.
func File(path, data string, perm uint32) Entry {
	return Entry{Path: path, Node: image.Node{Mode: 0o100000 | perm}, Data: data}
}

// Dir is a directory. Parents that are not given are made with mode 0755.
func Dir(path string, perm uint32) Entry {
	return Entry{Path: path, Node: image.Node{Mode: 0o040000 | perm}}
}

// Symlink points to target.
func Symlink(path, target string) Entry {
	return Entry{Path: path, Node: image.Node{Mode: 0o120777}, Data: target}
}

// Hardlink is another name of an earlier path's node.
func Hardlink(path, of string) Entry { return Entry{Path: path, Link: of} }

// Special is a FIFO, socket or device; mode has its type.
func Special(path string, mode, rdev uint32) Entry {
	return Entry{Path: path, Node: image.Node{Mode: mode, Rdev: rdev}}
}

// With changes the node of an entry.
func (e Entry) With(change func(*image.Node)) Entry {
	change(&e.Node)
	return e
}

// Tree is an image with its contents; it implements image.Files.
type Tree struct {
	*image.Image
	Contents *Contents
	Inos     map[string]uint64 // by path
}

// OpenFile implements image.Files.
func (t *Tree) OpenFile(n image.Node) (content.Reader, error) { return t.Contents.Open(n.Content) }

// Build writes and opens an image of the given entries in the SHA-1 object format. Nodes get numbers in order,
// Root for the root.
func Build(t testing.TB, entries ...Entry) *Tree {
	t.Helper()
	tree, b := Builder(t, entries...)
	tree.Image = Open(t, b)
	return tree
}

// Builder is Build without its last step; Tree's Image is nil.
func Builder(t testing.TB, entries ...Entry) (*Tree, *image.Builder) {
	t.Helper()
	tree := &Tree{Contents: NewContents(), Inos: map[string]uint64{}}
	b := image.NewBuilder(content.SHA1)
	next := image.Root
	var add func(e Entry)
	add = func(e Entry) {
		if _, ok := tree.Inos[e.Path]; ok {
			t.Fatalf("imagetest: %q is there twice", e.Path)
		}
		ino := next
		if e.Path != "" {
			parent := path.Dir(e.Path)
			if parent == "." {
				parent = ""
			}
			if _, ok := tree.Inos[parent]; !ok {
				add(Dir(parent, 0o755))
				ino = next
			}
			if e.Link != "" {
				ino = tree.Inos[e.Link]
			}
			b.AddEntry(tree.Inos[parent], path.Base(e.Path), ino)
		}
		tree.Inos[e.Path] = ino
		if e.Link != "" {
			return
		}
		next++
		n := e.Node
		n.Ino = ino
		for _, at := range []*image.Time{&n.Mtime, &n.Ctime, &n.Btime} {
			if *at == (image.Time{}) {
				*at = Epoch
			}
		}
		if typ := n.Mode >> 12; typ == 8 || typ == 10 {
			n.Size = int64(len(e.Data))
			n.Content = tree.Contents.Put([]byte(e.Data))
		}
		b.Add(n)
	}
	if len(entries) == 0 || entries[0].Path != "" {
		add(Dir("", 0o755))
	}
	for _, e := range entries {
		add(e)
	}
	return tree, b
}

// Open writes what b holds into the test's directory and opens it.
func Open(t testing.TB, b *image.Builder) *image.Image {
	t.Helper()
	name := filepath.Join(t.TempDir(), "image")
	if _, err := b.Write(durable.OS, name); err != nil {
		t.Fatal(err)
	}
	m, err := image.Open(durable.OS, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// Contents is a content.Opener over memory. Safe for concurrent use.
type Contents struct {
	mu   sync.Mutex
	data map[content.ID][]byte
}

// NewContents has nothing in it.
func NewContents() *Contents { return &Contents{data: map[content.ID][]byte{}} }

// Put adds bytes under their SHA-1 git blob id, whatever their size.
func (c *Contents) Put(data []byte) content.ID {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(data))
	h.Write(data)
	id := content.ID{Algo: content.GitSHA1}
	copy(id.Digest[:], h.Sum(nil))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data[id] = bytes.Clone(data)
	return id
}

// Remove makes a content missing.
func (c *Contents) Remove(id content.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.data, id)
}

// Open implements content.Opener.
func (c *Contents) Open(id content.ID) (content.Reader, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, ok := c.data[id]
	if !ok {
		return nil, &content.MissingError{ID: id}
	}
	return reader{bytes.NewReader(data)}, nil
}

type reader struct{ *bytes.Reader }

func (reader) Close() error  { return nil }
func (r reader) Size() int64 { return r.Reader.Size() }

// ReadAll is all of a content.
func ReadAll(t testing.TB, o content.Opener, id content.ID) []byte {
	t.Helper()
	r, err := o.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.NewSectionReader(r, 0, r.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
