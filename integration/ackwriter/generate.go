package ackwriter

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// maxFile (bytes) bounds files' sizes, so that comparing stays quick.
const maxFile = 256 << 10

// rescan is after how many operations the generator looks at the tree again.
const rescan = 30

// generator chooses operations that mostly make sense for the tree as it is.
type generator struct {
	root  string
	r     *rand.Rand
	kinds []string // each as often as its weight
	files []string // everything that is not a directory
	dirs  []string // without the root
	calls int
	n     int    // numbers new names
	attr  Op     // the setxattr made last
	tag   string // makes new names unique among writers and rounds
}

func newGenerator(root string, seed uint64) *generator {
	g := &generator{root: root, r: rand.New(rand.NewPCG(seed, 1)), tag: fmt.Sprintf("%x", seed)}
	for _, k := range slices.Sorted(maps.Keys(Kinds)) {
		for range Kinds[k] {
			g.kinds = append(g.kinds, k)
		}
	}
	return g
}

func (g *generator) scan() error {
	g.files, g.dirs = g.files[:0], g.dirs[:0]
	return filepath.WalkDir(g.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(g.root, p)
		switch {
		case err != nil || rel == ".":
		case d.IsDir():
			g.dirs = append(g.dirs, rel)
		default:
			g.files = append(g.files, rel)
		}
		return err
	})
}

func (g *generator) pick(list []string, otherwise string) string {
	if len(list) == 0 {
		return otherwise
	}
	return list[g.r.IntN(len(list))]
}

func (g *generator) file() string { return g.pick(g.files, "none") }

func (g *generator) any() string {
	if g.r.IntN(4) == 0 {
		return g.pick(g.dirs, "none")
	}
	return g.file()
}

func (g *generator) fresh() string {
	g.n++
	name := fmt.Sprintf("n%s-%d", g.tag, g.n)
	if d := g.pick(g.dirs, ""); d != "" && g.r.IntN(5) > 0 && len(d) < 200 {
		return d + "/" + name
	}
	return name
}

func (g *generator) size() int64 {
	return []int64{1, 10, 100, 512, 4096, 5000, 16384, 20000, 65536}[g.r.IntN(9)]
}

func (g *generator) off() int64 {
	return []int64{0, 0, 1, 100, 4095, 4096, 8192, 65536, g.r.Int64N(maxFile - 65536)}[g.r.IntN(9)]
}

func (g *generator) next() (Op, error) {
	if g.calls%rescan == 0 {
		if err := g.scan(); err != nil {
			return Op{}, err
		}
	}
	g.calls++
	// Neither grow nor shrink without end.
	kind := g.kinds[g.r.IntN(len(g.kinds))]
	if len(g.files) > 150 && (kind == "create" || kind == "link" || kind == "tmpfile-link" || kind == "symlink") {
		kind = "unlink"
	}
	if len(g.files) < 20 && kind == "unlink" {
		kind = "create"
	}
	if kind == "rmxattr" && g.attr.Path == "" {
		kind = "setxattr"
	}
	if len(g.dirs) > 40 && kind == "mkdir" {
		kind = "rmdir"
	}
	op := Op{Kind: kind, Path: g.file(), Seed: g.r.Uint64() >> 1}
	switch kind {
	case "create", "mkfifo", "mkdir", "tmpfile-link":
		op.Path, op.Mode, op.Len = g.fresh(), []uint32{0o644, 0o600, 0o755}[g.r.IntN(3)], g.size()
	case "symlink":
		op.Path, op.To = g.fresh(), g.any()
	case "link":
		op.To = g.fresh()
	case "rename":
		op.Path, op.To = g.any(), g.fresh()
		if g.r.IntN(3) == 0 {
			op.To = g.any()
		}
		op.Mode = []uint32{0, 0, 0, unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE}[g.r.IntN(5)]
	case "rmdir":
		op.Path = g.pick(g.dirs, "none")
	case "write", "append":
		op.Off, op.Len = g.off(), g.size()
		if kind == "append" {
			op.Off = 0
			op.Len = min(op.Len, 5000)
		}
	case "truncate":
		op.Len = g.off()
	case "chmod":
		op.Mode = []uint32{0o644, 0o600, 0o755, 0o444, 0o4755}[g.r.IntN(5)]
	case "chown":
		op.Path, op.ID = g.any(), uint32(g.r.IntN(3))*500
	case "utimes":
		op.Path, op.Seed = g.any(), 1_000_000_000_000_000_000+op.Seed%400_000_000_000_000_000
	case "setxattr":
		op.Name, op.Len = fmt.Sprintf("user.x%d", g.r.IntN(3)), g.size()%1000
		op.Mode = []uint32{0, 0, unix.XATTR_CREATE, unix.XATTR_REPLACE}[g.r.IntN(4)]
		g.attr = op
	case "rmxattr":
		op.Path, op.Name = g.attr.Path, g.attr.Name
	case "fallocate":
		op.Off, op.Len = g.off(), g.size()
		op.Mode = []uint32{0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE,
			unix.FALLOC_FL_ZERO_RANGE}[g.r.IntN(4)]
	case "copy-range":
		op.To, op.Off, op.Len = g.file(), g.off(), g.size()
	case "mmap":
		g.shape(&op)
	}
	return op, nil
}

// shape fits a mapped store into the file as it is now. Not into set-user-ID files: their late write-back clears that
// bit in a fork, and not on ext4.
func (g *generator) shape(op *Op) {
	for range 10 {
		fi, err := os.Lstat(filepath.Join(g.root, op.Path))
		if err == nil && fi.Mode().IsRegular() && fi.Size() > 0 && fi.Mode()&os.ModeSetuid == 0 {
			op.Off = g.r.Int64N(fi.Size())
			op.Len = min(g.size(), fi.Size()-op.Off)
			return
		}
		op.Path = g.file()
	}
	op.Kind, op.Len = "fsync", 0
}
