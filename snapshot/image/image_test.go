package image_test

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"tine/snapshot/content"
	"tine/snapshot/durable"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

// sample has every kind of node.
func sample() []imagetest.Entry {
	return []imagetest.Entry{
		imagetest.Dir("", 0o755).With(func(n *image.Node) { n.Xattrs = []image.Xattr{{Name: "user.root", Value: []byte("r")}} }),
		imagetest.File("README", "hello\n", 0o644).With(func(n *image.Node) { n.Mtime = image.Time{Sec: -1, Nsec: 999999999} }),
		imagetest.File("bin/tool", "#!/bin/sh\n", 0o6755).With(func(n *image.Node) {
			n.UID, n.GID = 1000, 100
			n.Xattrs = []image.Xattr{{Name: "security.capability", Value: []byte{1, 0, 2}}, {Name: "user.e", Value: []byte{}}}
		}),
		imagetest.Hardlink("bin/tool2", "bin/tool"),
		imagetest.Symlink("bin/sh", "tool"),
		imagetest.Dir("empty", 0o700),
		imagetest.Dir("sub", 0o755).With(func(n *image.Node) { n.Gitlink = []byte("01234567890123456789") }),
		imagetest.Special("dev/fifo", 0o010600, 0),
		imagetest.Special("dev/null", 0o020666, 1<<8|3),
		imagetest.Special("dev/sock", 0o140755, 0),
		imagetest.File("dir/\xff\xfe not utf-8", "x", 0o600),
		imagetest.File("dir/"+strings.Repeat("n", 255), "", 0o644),
	}
}

func names(t *testing.T, tree image.Tree, dir, after uint64) (out []string) {
	t.Helper()
	err := tree.ReadDir(dir, after, func(d image.Dirent) bool {
		if got, err := tree.Lookup(dir, d.Name); err != nil || got != d {
			t.Fatalf("look-up of %q: %+v, %v; want %+v", d.Name, got, err, d)
		}
		out = append(out, d.Name)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestImageHoldsEveryNode(t *testing.T) {
	tree, b := imagetest.Builder(t, sample()...)
	tree.Image = imagetest.Open(t, b)
	for _, e := range sample() {
		if e.Link != "" {
			continue
		}
		n, err := tree.Node(tree.Inos[e.Path])
		if err != nil {
			t.Fatalf("%q: %v", e.Path, err)
		}
		w := e.Node
		if n.Mode != w.Mode || n.UID != w.UID || n.GID != w.GID || n.Rdev != w.Rdev || n.Size != int64(len(e.Data)) ||
			!reflect.DeepEqual(n.Xattrs, w.Xattrs) || !reflect.DeepEqual(n.Gitlink, w.Gitlink) || n.Ctime != imagetest.Epoch {
			t.Errorf("%q: got %+v, want %+v", e.Path, n, w)
		}
	}
	if n, _ := tree.Node(tree.Inos["bin/tool"]); n.Nlink != 2 || n.Parent != 0 {
		t.Errorf("hard link: nlink %d, parent %d", n.Nlink, n.Parent)
	}
	if n, _ := tree.Node(image.Root); n.Nlink != 7 || n.Parent != image.Root {
		t.Errorf("root: nlink %d, parent %d", n.Nlink, n.Parent)
	}
	if got := names(t, tree, image.Root, 0); strings.Join(got, " ") != "README bin dev dir empty sub" {
		t.Errorf("root lists %q", got)
	}
	if got := names(t, tree, image.Root, 4); strings.Join(got, " ") != "empty sub" {
		t.Errorf("after 4, root lists %q", got)
	}
	if got := names(t, tree, tree.Inos["empty"], 0); got != nil {
		t.Errorf("empty lists %q", got)
	}
	if n, err := tree.NumEntries(tree.Inos["bin"]); n != 3 || err != nil {
		t.Errorf("bin has %d entries, %v", n, err)
	}
	for _, err := range []error{
		second(tree.Node(1000)), second(tree.Node(0)), second(tree.Lookup(image.Root, "nope")), second(tree.Lookup(99, "x")),
		second(tree.Lookup(tree.Inos["README"], "x")), second(tree.NumEntries(tree.Inos["README"])),
		tree.ReadDir(tree.Inos["README"], 0, nil),
	} {
		if !errors.Is(err, image.ErrNotExist) {
			t.Errorf("got %v, want ErrNotExist", err)
		}
	}
	inodes, size := tree.Counts()
	if inodes != 14 || size != 17 || tree.NextIno() != 15 || tree.NumNames() != 14 {
		t.Errorf("inodes %d, bytes %d, next %d, names %d", inodes, size, tree.NextIno(), tree.NumNames())
	}
}

func second[T any](_ T, err error) error { return err }

func TestClosedImage(t *testing.T) {
	tree := imagetest.Build(t, sample()...)
	tree.Close()
	if _, err := tree.Node(1); !errors.Is(err, image.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := tree.Lookup(1, "x"); !errors.Is(err, image.ErrClosed) {
		t.Fatal(err)
	}
}

func TestBuilderRefusesWhatIsNoTree(t *testing.T) {
	dir := image.Node{Mode: 0o040755}
	file := image.Node{Mode: 0o100644, Content: content.ID{Algo: content.GitSHA1}}
	at := func(n image.Node, ino uint64) image.Node { n.Ino = ino; return n }
	for name, make := range map[string]func(b *image.Builder){
		"no root":      func(b *image.Builder) { b.Add(at(dir, 2)) },
		"root is file": func(b *image.Builder) { b.Add(at(file, 1)) },
		"twice":        func(b *image.Builder) { b.Add(at(dir, 1)); b.Add(at(dir, 1)) },
		"no name":      func(b *image.Builder) { b.Add(at(dir, 1)); b.Add(at(file, 2)) },
		"unknown node": func(b *image.Builder) { b.Add(at(dir, 1)); b.AddEntry(1, "a", 2) },
		"in a file": func(b *image.Builder) {
			b.Add(at(dir, 1))
			b.Add(at(file, 2))
			b.AddEntry(1, "a", 2)
			b.AddEntry(2, "b", 2)
		},
		"name twice": func(b *image.Builder) {
			b.Add(at(dir, 1))
			b.Add(at(file, 2))
			b.AddEntry(1, "a", 2)
			b.AddEntry(1, "a", 2)
		},
		"dir two names": func(b *image.Builder) {
			b.Add(at(dir, 1))
			b.Add(at(dir, 2))
			b.AddEntry(1, "a", 2)
			b.AddEntry(1, "b", 2)
		},
		"names root": func(b *image.Builder) { b.Add(at(dir, 1)); b.AddEntry(1, "a", 1) },
		"cycle": func(b *image.Builder) {
			b.Add(at(dir, 1))
			b.Add(at(dir, 2))
			b.Add(at(dir, 3))
			b.AddEntry(2, "a", 3)
			b.AddEntry(3, "a", 2)
		},
		"dot":   func(b *image.Builder) { b.Add(at(dir, 1)); b.Add(at(file, 2)); b.AddEntry(1, "..", 2) },
		"slash": func(b *image.Builder) { b.Add(at(dir, 1)); b.Add(at(file, 2)); b.AddEntry(1, "a/b", 2) },
		"long": func(b *image.Builder) {
			b.Add(at(dir, 1))
			b.Add(at(file, 2))
			b.AddEntry(1, strings.Repeat("a", 256), 2)
		},
		"next ino": func(b *image.Builder) { b.Add(at(dir, 1)); b.SetNextIno(1) },
		"no content": func(b *image.Builder) {
			b.Add(at(dir, 1))
			b.Add(image.Node{Ino: 2, Mode: 0o100644})
			b.AddEntry(1, "a", 2)
		},
		"odd mode": func(b *image.Builder) {
			b.Add(at(dir, 1))
			b.Add(image.Node{Ino: 2, Mode: 0o644})
			b.AddEntry(1, "a", 2)
		},
	} {
		b := image.NewBuilder(content.SHA1)
		make(b)
		path := filepath.Join(t.TempDir(), "image")
		if _, err := b.Write(durable.OS, path); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := durable.OS.Lstat(path); err == nil {
			t.Errorf("%s: a file was left", name)
		}
	}
}
