package seal

import (
	"errors"

	"tine/snapshot"
	"tine/snapshot/image"
)

// totals are Checkpoint.Files and Bytes: names of regular files and symlinks outside of the top .git, and the bytes behind them.
type totals struct{ files, bytes int64 }

// count derives the checkpoint's totals from its base's. Only where inodes changed whose names did not, and there is a .git,
// has that to be listed: a file doesn't know where its names are.
func (s *sealer) count(base snapshot.Checkpoint, nodes []image.Node) (totals, error) {
	t := totals{base.Files, base.Bytes}
	git := gitCache{view: s.view, base: s.base, dirs: map[uint64]bool{}}
	if err := git.init(); err != nil {
		return t, err
	}
	changed := make(map[uint64]*image.Node, len(nodes)) // files whose size differs from the base's
	for i := range nodes {
		n := &nodes[i]
		if !counted(n.Mode) {
			continue
		}
		if old, err := s.base.Node(n.Ino); err == nil && old.Size != n.Size {
			changed[n.Ino] = n
		} else if err != nil && !errors.Is(err, image.ErrNotExist) {
			return t, err
		}
	}
	// Names that came or went, each with the size that it had on its side.
	renamed := map[uint64]int64{} // changed inode → names that it keeps, as a difference from its old number
	var err error
	crossed := false // a directory went into .git or came out of it, with everything in it
	s.view.ChangedEntries(func(dir uint64, d image.Dirent) bool {
		var in bool
		old, oerr := s.base.Lookup(dir, d.Name)
		if oerr == nil {
			if in, err = git.inside(s.base, dir, d.Name); err != nil {
				return false
			}
			var n image.Node
			if n, err = s.base.Node(old.Ino); err != nil {
				return false
			}
			if counted(n.Mode) && !in {
				t.files--
				t.bytes -= n.Size
			}
			if counted(n.Mode) {
				renamed[old.Ino]--
			}
		} else if !errors.Is(oerr, image.ErrNotExist) {
			err = oerr
			return false
		}
		if d.Ino != 0 {
			if in, err = git.inside(s.view, dir, d.Name); err != nil {
				return false
			}
			var n image.Node
			if n, err = s.view.Node(d.Ino); err != nil {
				return false
			}
			if counted(n.Mode) && !in {
				t.files++
				t.bytes += n.Size
			}
			if n.Mode>>12 == 4 {
				var was bool
				if was, err = git.wasInside(d.Ino, in); err != nil {
					return false
				}
				crossed = crossed || was != in
			}
		}
		return true
	})
	if err != nil {
		return t, err
	}
	if crossed {
		return countAll(s.view)
	}
	return t, s.countKept(&t, changed, renamed, &git)
}

// countKept adds what changed in the sizes of files behind names that stayed.
func (s *sealer) countKept(t *totals, changed map[uint64]*image.Node, renamed map[uint64]int64, git *gitCache) error {
	kept := map[uint64]int64{} // inode → names that both trees have
	left := 0
	for ino := range changed {
		old, err := s.base.Node(ino)
		if err != nil {
			return err
		}
		if n := int64(old.Nlink) + renamed[ino]; n > 0 {
			kept[ino] = n
			left++
		}
	}
	if left == 0 {
		return nil
	}
	// Names in .git that both trees have don't count.
	err := git.each(func(dir uint64, d image.Dirent) {
		if kept[d.Ino] == 0 {
			return
		}
		if now, err := s.view.Lookup(dir, d.Name); err == nil && now.Ino == d.Ino {
			kept[d.Ino]--
		}
	})
	if err != nil {
		return err
	}
	for ino, names := range kept {
		old, err := s.base.Node(ino)
		if err != nil {
			return err
		}
		t.bytes += names * (changed[ino].Size - old.Size)
	}
	return nil
}

func counted(mode uint32) bool {
	typ := mode >> 12
	return typ == 8 || typ == 10 // S_IFREG, S_IFLNK
}

// gitCache knows which directories are in the top .git, in either tree.
type gitCache struct {
	view, base image.Tree
	viewGit    uint64 // the inode of the top .git, 0 if there is none
	baseGit    uint64
	dirs       map[uint64]bool // answers for directories of the view
	baseDirs   map[uint64]bool
}

func (g *gitCache) init() error {
	g.baseDirs = map[uint64]bool{}
	for _, side := range []struct {
		t   image.Tree
		ino *uint64
	}{{g.view, &g.viewGit}, {g.base, &g.baseGit}} {
		d, err := side.t.Lookup(image.Root, ".git")
		if errors.Is(err, image.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		*side.ino = d.Ino
	}
	return nil
}

// inside reports whether name in directory dir of t is the top .git or in it.
func (g *gitCache) inside(t image.Tree, dir uint64, name string) (bool, error) {
	if dir == image.Root {
		return name == ".git", nil
	}
	top, known := g.viewGit, g.dirs
	if t == g.base {
		top, known = g.baseGit, g.baseDirs
	}
	if top == 0 {
		return false, nil
	}
	var path []uint64
	in := false
	for at := dir; at != image.Root; {
		if at == top {
			in = true
			break
		}
		if answer, ok := known[at]; ok {
			in = answer
			break
		}
		path = append(path, at)
		n, err := t.Node(at)
		if err != nil {
			return false, err
		}
		at = n.Parent
	}
	for _, at := range path {
		known[at] = in
	}
	return in, nil
}

// wasInside reports whether the base has directory ino in its .git, and now if the base doesn't have it.
func (g *gitCache) wasInside(ino uint64, now bool) (bool, error) {
	n, err := g.base.Node(ino)
	switch {
	case errors.Is(err, image.ErrNotExist):
		return now, nil
	case err != nil:
		return false, err
	case ino == g.baseGit:
		return true, nil
	case n.Parent == image.Root:
		return false, nil
	}
	return g.inside(g.base, n.Parent, "")
}

// countAll counts a tree by listing it.
func countAll(t image.Tree) (totals, error) {
	var sum totals
	var walk func(dir uint64) error
	walk = func(dir uint64) error {
		var list []image.Dirent
		if err := t.ReadDir(dir, 0, func(d image.Dirent) bool { list = append(list, d); return true }); err != nil {
			return err
		}
		for _, d := range list {
			if dir == image.Root && d.Name == ".git" {
				continue
			}
			n, err := t.Node(d.Ino)
			if err != nil {
				return err
			}
			if counted(n.Mode) {
				sum.files++
				sum.bytes += n.Size
			} else if n.Mode>>12 == 4 {
				if err := walk(d.Ino); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return sum, walk(image.Root)
}

// each lists the base's .git.
func (g *gitCache) each(yield func(dir uint64, d image.Dirent)) error {
	if g.baseGit == 0 {
		return nil
	}
	yield(image.Root, image.Dirent{Name: ".git", Ino: g.baseGit})
	var walk func(dir uint64) error
	walk = func(dir uint64) error {
		var subs []uint64
		err := g.base.ReadDir(dir, 0, func(d image.Dirent) bool {
			if d.Type == 4 { // DT_DIR
				subs = append(subs, d.Ino)
			} else {
				yield(dir, d)
			}
			return true
		})
		for _, sub := range subs {
			if err == nil {
				err = walk(sub)
			}
		}
		return err
	}
	n, err := g.base.Node(g.baseGit)
	if err != nil || n.Mode>>12 != 4 {
		return err
	}
	return walk(g.baseGit)
}
