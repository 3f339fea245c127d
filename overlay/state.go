package overlay

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"
	"golang.org/x/sys/unix"

	"tine/snapshot/content"
	"tine/snapshot/image"
)

// copyMu is held while a B-tree that two states may share is copied: the copy marks its source.
var copyMu sync.Mutex

var epochs atomic.Uint64

// dirent is one changed name. Values are immutable; ino 0 is a whiteout.
type dirent struct {
	dir  uint64
	ino  uint64
	pos  uint64
	name string
	typ  uint8
	base bool // the base has this name: removing it leaves a whiteout
}

func lessByName(a, b *dirent) bool {
	if a.dir != b.dir {
		return a.dir < b.dir
	}
	return a.name < b.name
}

func lessByPos(a, b *dirent) bool {
	if a.dir != b.dir {
		return a.dir < b.dir
	}
	return a.pos < b.pos
}

// contentRef is a stored content that Clone made a part of another file.
type contentRef struct {
	id   content.ID
	size int64
}

// state is a tree of inodes: a base and what was changed. A fork's live state is guarded by the fork's lock; a
// transaction owns a clone; a view's is immutable.
type state struct {
	base  image.Tree
	epoch uint64 // of nodes and extents that this state alone has

	nodes *btree.Map[uint64, *node]
	names *btree.BTreeG[*dirent] // by (dir, name), whiteouts included
	order *btree.BTreeG[*dirent] // by (dir, pos): entries at NewPos and above

	nextIno uint64
	orphans map[uint64]struct{} // inodes without a name that somebody may hold open
	refs    []contentRef        // append-only

	inodes    int64 // that exist, orphans included
	sizes     int64 // sum of the sizes of regular files
	ownInodes int64 // made here and not in the base
	ownBytes  int64 // bytes in extents that take space
	inline    int64 // bytes of extents that lie in the live layer's journal (shared ones more than once)

	// dead is told which stored runs no longer show anywhere; nil during replay.
	dead func(extent)
}

func newState(base image.Tree) *state {
	inodes, bytes := base.Counts()
	return &state{
		base: base, epoch: epochs.Add(1), nodes: new(btree.Map[uint64, *node]),
		names:   btree.NewBTreeGOptions(lessByName, btree.Options{NoLocks: true}),
		order:   btree.NewBTreeGOptions(lessByPos, btree.Options{NoLocks: true}),
		nextIno: max(base.NextIno(), image.Root+1),
		inodes:  int64(inodes), sizes: int64(bytes),
	}
}

// clone is O(1). Both states give up what they own: each copies a node or an extent set before its next change.
func (s *state) clone() *state {
	copyMu.Lock()
	defer copyMu.Unlock()
	c := *s
	c.nodes, c.names, c.order = s.nodes.Copy(), s.names.Copy(), s.order.Copy()
	c.orphans = nil
	for ino := range s.orphans {
		c.addOrphan(ino)
	}
	c.refs = s.refs[:len(s.refs):len(s.refs)]
	c.epoch, s.epoch = epochs.Add(1), epochs.Add(1)
	return &c
}

func (s *state) addOrphan(ino uint64) {
	if s.orphans == nil {
		s.orphans = make(map[uint64]struct{})
	}
	s.orphans[ino] = struct{}{}
}

// baseErr turns a tree's error into an errno or an *IOError.
func baseErr(op string, ino uint64, err error) error {
	if errors.Is(err, image.ErrNotExist) {
		return unix.ENOENT
	}
	return &IOError{Op: op, Ino: ino, Err: err}
}

// changed returns the node of a changed inode. ok is false when only the base knows; the error is ENOENT when the
// inode is gone.
func (s *state) changed(ino uint64) (n *node, ok bool, err error) {
	if n, ok = s.nodes.Get(ino); ok && n.flags&nodeGone != 0 {
		return nil, true, unix.ENOENT
	}
	return n, ok, nil
}

// node returns an inode for reading, changed or not.
func (s *state) node(ino uint64) (*node, error) {
	n, ok, err := s.changed(ino)
	if ok || err != nil {
		return n, err
	}
	b, err := s.base.Node(ino)
	if err != nil {
		return nil, baseErr("reading", ino, err)
	}
	return fromImage(&b, 0), nil
}

// own returns an inode for changing.
func (s *state) own(ino uint64) (*node, error) {
	n, ok, err := s.changed(ino)
	if err != nil {
		return nil, err
	}
	if ok {
		if n.epoch != s.epoch {
			n = n.clone(s.epoch)
			s.nodes.Set(ino, n)
		}
		return n, nil
	}
	b, err := s.base.Node(ino)
	if err != nil {
		return nil, baseErr("reading", ino, err)
	}
	n = fromImage(&b, s.epoch)
	s.nodes.Set(ino, n)
	return n, nil
}

// ownDir is own for a directory, with its entry count.
func (s *state) ownDir(ino uint64) (*node, error) {
	n, err := s.own(ino)
	if err != nil {
		return nil, err
	}
	if n.dir == nil {
		d := &dirState{nextPos: image.NewPos}
		if n.flags&nodeBase != 0 {
			if d.count, err = s.base.NumEntries(ino); err != nil {
				return nil, baseErr("counting", ino, err)
			}
		}
		n.dir = d
	}
	return n, nil
}

// entries counts the names in a directory.
func (s *state) entries(n *node) (int, error) {
	if n.dir != nil {
		return n.dir.count, nil
	}
	if n.flags&nodeBase == 0 {
		return 0, nil
	}
	c, err := s.base.NumEntries(n.ino)
	if err != nil {
		return 0, baseErr("counting", n.ino, err)
	}
	return c, nil
}

// entry looks a name up. The result is nil when it doesn't exist.
func (s *state) entry(dir uint64, name string) (*dirent, error) {
	if s.names.Len() > 0 {
		if d, ok := s.names.Get(&dirent{dir: dir, name: name}); ok {
			if d.ino == 0 {
				return nil, nil
			}
			return d, nil
		}
	}
	b, ok, err := s.baseEntry(dir, name)
	if err != nil || !ok {
		return nil, err
	}
	return &dirent{dir: dir, ino: b.Ino, pos: b.Pos, name: name, typ: b.Type, base: true}, nil
}

// baseEntry looks a name up in the base alone.
func (s *state) baseEntry(dir uint64, name string) (image.Dirent, bool, error) {
	b, err := s.base.Lookup(dir, name)
	if err == nil {
		return b, true, nil
	}
	if errors.Is(err, image.ErrNotExist) {
		return b, false, nil
	}
	return b, false, &IOError{Op: "looking up in", Ino: dir, Err: err}
}

// checkName refuses what is no name of an entry.
func checkName(name string) error {
	switch {
	case len(name) > 255:
		return unix.ENAMETOOLONG
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00"):
		return unix.EINVAL
	}
	return nil
}
