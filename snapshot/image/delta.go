package image

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"tine/snapshot/content"
	"tine/snapshot/durable"
)

// Delta makes an image in the delta form: what differs from a base image, cumulatively. Changes come in any order,
// the last of a node or a name counts, and one that changes nothing is dropped. Link counts and parents are computed,
// as by Builder. A Delta is used by one goroutine.
type Delta struct {
	base    *Image // in the base form
	nodes   map[uint64]*Node
	names   map[uint64]map[string]uint64 // 0: gone
	kinds   map[content.ID]ContentRef
	nextIno uint64
	err     error
}

// NewDelta begins with the tree of m: without a change over a base, with its changes when m is a delta itself. The
// result is a delta over the same base.
func NewDelta(m *Image) (*Delta, error) {
	v, err := m.view()
	if err != nil {
		return nil, err
	}
	base := &Image{}
	base.v.Store(&view{base: v.base})
	d := &Delta{base: base, nodes: map[uint64]*Node{}, names: map[uint64]map[string]uint64{}, kinds: map[content.ID]ContentRef{},
		nextIno: v.top().h.nextIno}
	if v.delta == nil {
		return d, nil
	}
	if err := v.load(d); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Delta) fail(err error) {
	if d.err == nil {
		d.err = fmt.Errorf("make a delta image: %w", err)
	}
}

// SetNode adds or replaces a node. Its Nlink and Parent are ignored.
func (d *Delta) SetNode(n Node) {
	if err := checkNode(&n); err != nil {
		d.fail(err)
		return
	}
	d.nodes[n.Ino] = &n
}

// RemoveNode removes a node; all its names must be removed, too.
func (d *Delta) RemoveNode(ino uint64) {
	if ino == Root {
		d.fail(errors.New("the root can't be removed"))
		return
	}
	d.nodes[ino] = nil
}

// SetEntry names node ino in directory dir, replacing the entry of that name.
func (d *Delta) SetEntry(dir uint64, name string, ino uint64) {
	if err := checkName(bytesOf(name)); err != nil || ino == 0 || ino == Root {
		d.fail(fmt.Errorf("directory %d: %q can't name node %d", dir, name, ino))
		return
	}
	d.setName(dir, name, ino)
}

// RemoveEntry removes a name.
func (d *Delta) RemoveEntry(dir uint64, name string) { d.setName(dir, name, 0) }

func (d *Delta) setName(dir uint64, name string, ino uint64) {
	if d.names[dir] == nil {
		d.names[dir] = map[string]uint64{}
	}
	d.names[dir][name] = ino
}

// SetNextIno raises the number that the next new node gets.
func (d *Delta) SetNextIno(next uint64) { d.nextIno = max(d.nextIno, next) }

// SetKind records where a content that the delta uses comes from (Builder.SetKind).
func (d *Delta) SetKind(id content.ID, kind Kind, aux [2]uint64) {
	d.kinds[id] = ContentRef{ID: id, Kind: kind, Aux: aux}
}

// Write publishes the delta at path (0444), replacing what was there.
func (d *Delta) Write(fsys durable.FS, path string) (Identity, error) {
	e, err := d.Encode()
	if err != nil {
		return Identity{}, err
	}
	return e.Identity(), e.Write(fsys, path)
}

// deltaEntry is a name that differs from the base.
type deltaEntry struct {
	dir      uint64
	name     string
	old, new uint64 // nodes; 0 for none
	typ      uint8  // of new
}

// deltaNode is a node that differs from the base.
type deltaNode struct {
	ino uint64
	old *Node // nil for a new node
	new *Node // nil for a removed one
}

// resolved is a delta reduced to what differs, both sorted.
type resolved struct {
	entries []deltaEntry
	nodes   []deltaNode
	live    map[uint64]int // entries of each directory that has a changed one
}

// resolve reduces the changes and refuses what makes no tree.
func (d *Delta) resolve() (*resolved, error) {
	r := &resolved{live: map[uint64]int{}}
	names := map[uint64]int{}   // change in the number of a node's names
	subdirs := map[uint64]int{} // change in the number of a directory's subdirectories
	parents := map[uint64]uint64{}
	touched := map[uint64]bool{} // directories named anew
	for _, dir := range sortedKeys(d.names) {
		var n int
		for _, name := range sortedKeys(d.names[dir]) {
			e := deltaEntry{dir: dir, name: name, new: d.names[dir][name]}
			old, err := d.base.Lookup(dir, name)
			if err == nil {
				e.old = old.Ino
			} else if !errors.Is(err, ErrNotExist) {
				return nil, err
			}
			if e.old == e.new {
				continue
			}
			if e.old != 0 {
				names[e.old]--
				n--
				if old.Type == typeDir {
					subdirs[dir]--
					touched[e.old] = true
				}
			}
			if e.new != 0 {
				node, err := d.node(e.new)
				if err != nil {
					return nil, fmt.Errorf("directory %d: %q names node %d: %w", dir, name, e.new, err)
				}
				names[e.new]++
				n++
				if e.typ = typeOf(node.Mode); e.typ == typeDir {
					subdirs[dir]++
					parents[e.new] = dir
					touched[e.new] = true
				}
			}
			if _, ok := r.live[dir]; !ok {
				r.live[dir] = 0
			}
			r.entries = append(r.entries, e)
		}
		if _, ok := r.live[dir]; ok {
			was, err := d.base.NumEntries(dir)
			if err != nil && !errors.Is(err, ErrNotExist) {
				return nil, err
			}
			r.live[dir] = was + n
			if node, err := d.node(dir); (err != nil || !node.IsDir()) && r.live[dir] > 0 {
				return nil, fmt.Errorf("node %d has entries and is no directory of the tree", dir)
			}
		}
	}
	inos := map[uint64]bool{}
	for _, m := range []map[uint64]int{names, subdirs} {
		for ino := range m {
			inos[ino] = true
		}
	}
	for ino := range d.nodes {
		inos[ino] = true
	}
	for _, ino := range sortedKeys(inos) {
		n, err := d.resolveNode(ino, names[ino], subdirs[ino], parents[ino], r.live)
		if err != nil {
			return nil, err
		}
		if n.old == nil && n.new == nil || n.old != nil && n.new != nil && !touched[ino] && sameNode(n.old, n.new) {
			continue
		}
		r.nodes = append(r.nodes, n)
	}
	return r, d.checkRooted(parents)
}

// node is a node of the resulting tree, with the base's nlink and parent.
func (d *Delta) node(ino uint64) (*Node, error) {
	if n, ok := d.nodes[ino]; ok {
		if n == nil {
			return nil, ErrNotExist
		}
		return n, nil
	}
	n, err := d.base.Node(ino)
	return &n, err
}

// resolveNode computes a node's links from the base's and the change in its names and subdirectories.
func (d *Delta) resolveNode(ino uint64, names, subdirs int, parent uint64, live map[uint64]int) (deltaNode, error) {
	n := deltaNode{ino: ino}
	old, err := d.base.Node(ino)
	if err == nil {
		n.old = &old
	} else if !errors.Is(err, ErrNotExist) {
		return n, err
	}
	set, changed := d.nodes[ino]
	switch {
	case changed && set == nil: // removed
	case changed:
		c := *set
		n.new = &c
	case n.old == nil:
		return n, fmt.Errorf("node %d has entries and is not there", ino)
	default:
		c := old
		n.new = &c
	}
	if n.old != nil {
		if old.IsDir() {
			if ino != Root {
				names++
			}
		} else {
			names += int(old.Nlink)
		}
	}
	if n.new == nil {
		left, ok := live[ino]
		if !ok && n.old != nil && old.IsDir() {
			if left, err = d.base.NumEntries(ino); err != nil {
				return n, err
			}
		}
		if names != 0 || left != 0 {
			return n, fmt.Errorf("node %d is removed and still has %d names and %d entries", ino, names, left)
		}
		return n, nil
	}
	if n.old != nil && typeOf(old.Mode) != typeOf(n.new.Mode) {
		return n, fmt.Errorf("node %d changes its type from %#o to %#o", ino, old.Mode, n.new.Mode)
	}
	if !n.new.IsDir() {
		if names < 1 {
			return n, fmt.Errorf("node %d has no name", ino)
		}
		n.new.Nlink, n.new.Parent = uint32(names), 0
		return n, nil
	}
	if names != 1 && ino != Root {
		return n, fmt.Errorf("directory %d has %d names", ino, names)
	}
	n.new.Nlink, n.new.Parent = 2, parent
	if n.old != nil {
		n.new.Nlink = old.Nlink
		if parent == 0 {
			n.new.Parent = old.Parent
		}
	}
	n.new.Nlink = uint32(int(n.new.Nlink) + subdirs)
	return n, nil
}

// checkRooted refuses directories that were moved into themselves: each one's parents are walked up to the root.
func (d *Delta) checkRooted(parents map[uint64]uint64) error {
	good := map[uint64]bool{Root: true}
	for start := range parents {
		var path []uint64
		seen := map[uint64]bool{}
		for ino := start; !good[ino]; {
			if seen[ino] {
				return fmt.Errorf("directory %d is inside itself", ino)
			}
			seen[ino] = true
			path = append(path, ino)
			up, ok := parents[ino]
			if !ok {
				n, err := d.base.Node(ino)
				if err != nil {
					return fmt.Errorf("directory %d: %w", ino, err)
				}
				up = n.Parent
			}
			ino = up
		}
		for _, ino := range path {
			good[ino] = true
		}
	}
	return nil
}

func sameNode(a, b *Node) bool {
	if a.Ino != b.Ino || a.Mode != b.Mode || a.Nlink != b.Nlink || a.UID != b.UID || a.GID != b.GID || a.Rdev != b.Rdev ||
		a.Size != b.Size || a.Mtime != b.Mtime || a.Ctime != b.Ctime || a.Btime != b.Btime || a.Parent != b.Parent ||
		a.Content != b.Content || string(a.Gitlink) != string(b.Gitlink) || len(a.Xattrs) != len(b.Xattrs) {
		return false
	}
	for i := range a.Xattrs {
		if a.Xattrs[i].Name != b.Xattrs[i].Name || string(a.Xattrs[i].Value) != string(b.Xattrs[i].Value) {
			return false
		}
	}
	return true
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
