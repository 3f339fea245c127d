package snapshot

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"tine/snapshot/content"
	"tine/snapshot/durable"
	"tine/snapshot/image"
)

// TreeID is the git tree id of the checkpoint's files (a full id), in hex: the logical content, whatever its times, owners
// and inode numbers. It is computed at the first call, which reads files of more than content.MaxSmall whose blob id isn't
// known yet, and remembered.
func (s *Store) TreeID(ctx context.Context, id string) (string, error) {
	c, err := s.load(id)
	if err != nil {
		return "", err
	}
	if c.TreeID != "" {
		return c.TreeID, nil
	}
	path := s.path("checkpoints", id+".tree")
	if data, err := durable.ReadFile(s.fs, path); err == nil {
		tree := strings.TrimSuffix(string(data), "\n")
		if len(tree) == 2*c.Identity.ObjectFormat.HashSize() && isHex(tree) {
			return tree, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	f, err := s.Files(id)
	if err != nil {
		return "", err
	}
	raw, err := GitTree(ctx, f, c.Identity.ObjectFormat, s.GitID)
	if err != nil {
		return "", fmt.Errorf("checkpoint %s: tree id: %w", short(id), err)
	}
	tree := hex.EncodeToString(raw)
	if s.writable() == nil {
		if out, err := s.writer(); err == nil {
			_ = out.WriteFile(path, []byte(tree+"\n"), 0o444) // computed again where it can't be kept
		}
	}
	return tree, nil
}

// GitID is the git blob id of a content in the format. What has to be read for it is remembered.
func (s *Store) GitID(id content.ID, f content.ObjectFormat) (content.ID, error) {
	if id.Algo == f.BlobAlgo() {
		return id, nil
	}
	key := gitIDKey(id, f)
	var known content.ID
	err := s.segs.find(key, func(l location) bool {
		if l.kind == kindGitID {
			if data, err := s.segs.read(key, l); err == nil {
				known, _ = decodeID(data)
			}
		}
		return known.IsZero()
	})
	if err != nil || known.Algo == f.BlobAlgo() {
		return known, err
	}
	r, err := s.Open(id)
	if err != nil {
		return content.ID{}, err
	}
	defer r.Close()
	got, err := content.BlobIDOf(r, r.Size(), f)
	if err != nil {
		return content.ID{}, err
	}
	if s.writable() == nil {
		_ = s.setGitID(id, got, r.Size()) // computed again where it can't be kept
	}
	return got, nil
}

// GitTree computes the git tree id of a tree, in bytes: every file but the top .git, empty directories and special files
// are left out, and a directory that carries a gitlink is a submodule while it is empty. gitID gives the git blob id of a content.
func GitTree(ctx context.Context, t image.Tree, f content.ObjectFormat, gitID func(content.ID, content.ObjectFormat) (content.ID, error)) ([]byte, error) {
	g := gitTree{ctx: ctx, tree: t, format: f, gitID: gitID}
	id, _, err := g.dir(image.Root)
	return id, err
}

type gitTree struct {
	ctx    context.Context
	tree   image.Tree
	format content.ObjectFormat
	gitID  func(content.ID, content.ObjectFormat) (content.ID, error)
}

type gitEntry struct {
	mode string
	name string
	id   []byte
}

// sortName is what git orders tree entries by.
func (e *gitEntry) sortName() string {
	if e.mode == gitDir {
		return e.name + "/"
	}
	return e.name
}

// Modes as git writes them into trees.
const (
	gitFile    = "100644"
	gitExec    = "100755"
	gitSymlink = "120000"
	gitDir     = "40000"
	gitLink    = "160000"
)

// dir returns the directory's tree id; empty is true if git would leave it out.
func (g *gitTree) dir(ino uint64) (id []byte, empty bool, err error) {
	if err := g.ctx.Err(); err != nil {
		return nil, false, err
	}
	var names []image.Dirent
	if err := g.tree.ReadDir(ino, 0, func(d image.Dirent) bool { names = append(names, d); return true }); err != nil {
		return nil, false, err
	}
	entries := make([]gitEntry, 0, len(names))
	for _, d := range names {
		if ino == image.Root && d.Name == ".git" {
			continue
		}
		e, ok, err := g.entry(d)
		if err != nil {
			return nil, false, err
		}
		if ok {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b gitEntry) int { return strings.Compare(a.sortName(), b.sortName()) })
	size := 0
	for i := range entries {
		size += len(entries[i].mode) + len(entries[i].name) + 2 + len(entries[i].id)
	}
	h := content.ObjectHash(g.format, "tree", int64(size))
	buf := make([]byte, 0, 512)
	for i := range entries {
		e := &entries[i]
		buf = append(append(append(append(buf[:0], e.mode...), ' '), e.name...), 0)
		h.Write(append(buf, e.id...))
	}
	return h.Sum(nil), len(entries) == 0, nil
}

// entry is d as git sees it; ok is false for what git doesn't keep.
func (g *gitTree) entry(d image.Dirent) (e gitEntry, ok bool, err error) {
	e.name = d.Name
	n, err := g.tree.Node(d.Ino)
	if err != nil {
		return e, false, err
	}
	switch n.Mode & modeType {
	case modeDir:
		if n.Gitlink != nil {
			count, err := g.tree.NumEntries(d.Ino)
			if err != nil {
				return e, false, err
			}
			if count == 0 {
				e.mode, e.id = gitLink, n.Gitlink
				return e, true, nil
			}
		}
		id, empty, err := g.dir(d.Ino)
		e.mode, e.id = gitDir, id
		return e, !empty, err
	case modeRegular:
		e.mode = gitFile
		if n.Mode&0o100 != 0 {
			e.mode = gitExec
		}
	case modeSymlink:
		e.mode = gitSymlink
	default:
		return e, false, nil
	}
	blob, err := g.gitID(n.Content, g.format)
	if err != nil {
		return e, false, fmt.Errorf("%s: %w", strconv.Quote(d.Name), err)
	}
	e.id = slices.Clone(blob.Bytes())
	return e, true, nil
}

// Bits of a node's mode (S_IFMT and types).
const (
	modeType    = 0o170000
	modeDir     = 0o040000
	modeRegular = 0o100000
	modeSymlink = 0o120000
)
