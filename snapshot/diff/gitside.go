package diff

import (
	"bytes"
	"encoding/hex"
	"fmt"

	"tine/snapshot/content"
	"tine/snapshot/image"
)

// side is a path as git would have it in a tree.
type side struct {
	files image.Files
	node  *image.Node // nil: nothing
	mode  string      // "100644", "100755", "120000", "160000"
}

// gitChange is what a change means to git: one `diff --git` section.
type gitChange struct {
	path, from string // from for renames
	old, new   side
	sameBytes  bool
}

// gitSide returns what git has of a node, an empty side for what it doesn't keep (directories, special files).
func gitSide(f image.Files, n *image.Node) (s side) {
	switch n.Mode & modeType {
	case modeRegular:
		s = side{f, n, "100644"}
		if n.Mode&0o100 != 0 {
			s.mode = "100755"
		}
	case modeSymlink:
		s = side{f, n, "120000"}
	case modeDir:
		if n.Gitlink == nil {
			return s
		}
		if count, err := f.NumEntries(n.Ino); err == nil && count == 0 {
			s = side{f, n, "160000"}
		}
	}
	return s
}

// gitChanges splits a change into sections: a changed type is a deletion and an addition.
func gitChanges(a, b image.Files, c *Change) []gitChange {
	var old, new side
	if c.Count > 0 {
		return nil
	}
	if c.Status != Added && c.Status != Linked {
		old = gitSide(a, &c.Old)
	}
	if c.Status != Deleted {
		new = gitSide(b, &c.New)
	}
	if old.node == nil && new.node == nil {
		return nil
	}
	if old.node == nil || new.node == nil {
		return []gitChange{{path: c.Path, from: "", old: old, new: new}}
	}
	if old.mode[:3] != new.mode[:3] {
		return []gitChange{{path: c.Path, old: old}, {path: c.Path, new: new}}
	}
	same := c.What&(Content|Target|Gitlink) == 0
	if same && old.mode == new.mode && c.Status != Renamed {
		return nil // owners, times, attributes, mode bits that git doesn't keep
	}
	g := gitChange{path: c.Path, old: old, new: new, sameBytes: same}
	if c.Status == Renamed {
		g.from = c.From
	}
	return []gitChange{g}
}

// inAnyGit: git never applies a patch to a path with such a component.
func inAnyGit(path string) bool {
	for _, part := range bytes.Split([]byte(path), []byte{'/'}) {
		if bytes.EqualFold(part, []byte(".git")) {
			return true
		}
	}
	return false
}

func (s *side) gitlink() string {
	return "Subproject commit " + hex.EncodeToString(s.node.Gitlink) + "\n"
}

func (s *side) size() int64 {
	switch {
	case s.node == nil:
		return 0
	case s.mode == "160000":
		return int64(len(s.gitlink()))
	}
	return s.node.Size
}

func (s *side) open() (content.Reader, error) {
	switch {
	case s.node == nil:
		return content.FromBytes(nil), nil
	case s.mode == "160000":
		return content.FromBytes([]byte(s.gitlink())), nil
	}
	return s.files.OpenFile(*s.node)
}

// id is the git object id in hex, zeroes for nothing.
func (s *side) id(f content.ObjectFormat) (string, error) {
	switch {
	case s.node == nil:
		return zeroID(f), nil
	case s.mode == "160000":
		return hex.EncodeToString(s.node.Gitlink), nil
	case s.node.Content.Algo == f.BlobAlgo():
		return hex.EncodeToString(s.node.Content.Bytes()), nil
	}
	r, err := s.open()
	if err != nil {
		return "", err
	}
	defer r.Close()
	id, err := content.BlobIDOf(r, r.Size(), f)
	return hex.EncodeToString(id.Bytes()), err
}

func zeroID(f content.ObjectFormat) string {
	return string(bytes.Repeat([]byte{'0'}, 2*f.HashSize()))
}

// textLimit (16 MiB) is the largest content that is compared by lines, which takes some times its size in memory. Larger ones
// are written as binary literals, which git applies as well.
const textLimit = 16 << 20

// texts reads both sides; text is false for what is shown as binary: a NUL in it, or too large.
func (g *gitChange) texts() (old, new []byte, text bool, err error) {
	if g.old.size() > textLimit || g.new.size() > textLimit {
		return nil, nil, false, nil
	}
	read := func(s *side) ([]byte, error) {
		r, err := s.open()
		if err != nil {
			return nil, err
		}
		defer r.Close()
		if r.Size() > textLimit {
			return nil, fmt.Errorf("%d bytes instead of %d", r.Size(), s.size())
		}
		return content.ReadAll(r, textLimit)
	}
	if old, err = read(&g.old); err != nil {
		return nil, nil, false, err
	}
	if new, err = read(&g.new); err != nil {
		return nil, nil, false, err
	}
	return old, new, bytes.IndexByte(old, 0) < 0 && bytes.IndexByte(new, 0) < 0, nil
}
