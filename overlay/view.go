package overlay

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"tine/snapshot/content"
	"tine/snapshot/image"
)

// View is a fork at one instant. It implements image.Files and never changes, whatever the fork does; inodes without
// a name are not in it. Owners are the stored ones (no owner map). Close lets go of the layers it needs. Safe for
// concurrent use.
type View struct {
	s        *state
	cfg      Config
	table    []*layer
	seq      uint64 // next sequence number
	counter  uint64
	live     bool // the last layer is still written to
	onClose  func()
	once     sync.Once
	contents content.Opener
}

// Rotate makes the fork's state so far immutable: it closes the live layer and goes on in newLayer, in O(1). The
// caller has durably recorded newLayer as the fork's last layer *before* (a crash in between is harmless: opening
// treats a layer without files as empty). Changes wait meanwhile. A sync in progress is not waited for.
func (f *Fork) Rotate(newLayer LayerID) (*View, error) {
	if err := f.gate.park(context.Background()); err != nil {
		return nil, err
	}
	defer f.Unpark()
	f.turn.Lock()
	defer f.turn.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.w.writable(); err != nil {
		return nil, err
	}
	if err := f.rotateLocked(newLayer); err != nil {
		return nil, err
	}
	// The new live layer is no part of the view.
	return f.viewLocked(f.table[:len(f.table)-1]), nil
}

// rotateLocked closes the live layer. f.turn and f.mu are held and no change is in progress.
func (f *Fork) rotateLocked(newLayer LayerID) error {
	for _, l := range f.table {
		if l.id == newLayer {
			return fmt.Errorf("fork %s: layer %s is in use already", f.cfg.ForkID, newLayer)
		}
	}
	if err := f.w.flushPending(); err != nil {
		return err
	}
	old := f.log
	if old.tail > 0 {
		f.unsync = append(f.unsync, unsynced{l: old.l, data: old.d != nil || f.space.tail > 0})
	}
	next := openLayer(f.fs, f.cfg.LayersDir, newLayer)
	// Views hold the table as it was.
	f.table = append(f.table[:len(f.table):len(f.table)], next)
	f.log = log{l: next, index: uint32(len(f.table) - 1), seq: old.seq, conn: old.conn}
	f.space = new(space)
	if old.j != nil && old.size > old.tail {
		go old.trim() // not while writers wait
	} else {
		old.close()
	}
	f.w.s.inline = 0
	f.treesAfterRotationLocked(&old)
	return nil
}

// View is the fork as it is now, without closing its layer. While it is open, space in the live layer is not reused.
func (f *Fork) View() (*View, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, unix.EBADF
	}
	v := f.viewLocked(f.table)
	v.live = true
	sp := f.space
	sp.pins++
	v.onClose = func() {
		f.mu.Lock()
		sp.pins--
		f.mu.Unlock()
	}
	return v, nil
}

// viewLocked copies the trees. f.mu is held for writing.
func (f *Fork) viewLocked(table []*layer) *View { return f.viewOf(f.w.s, table, f.log.seq) }

// viewOf copies the trees of a state that the caller owns, before record seq.
func (f *Fork) viewOf(s *state, table []*layer, seq uint64) *View {
	s = s.clone()
	s.dead = nil
	v := &View{s: s, cfg: f.cfg, table: table, seq: seq, counter: f.counter.Load(), contents: f.cfg.Contents}
	for _, l := range v.table {
		l.retain()
	}
	return v
}

// Close lets go of the view's layers. Files opened from it must be closed before.
func (v *View) Close() error {
	v.once.Do(func() {
		for _, l := range v.table {
			l.release()
		}
		if v.onClose != nil {
			v.onClose()
		}
	})
	return nil
}

// ChangeCounter is the fork's ChangeCounter at the view's instant.
func (v *View) ChangeCounter() uint64 { return v.counter }

// Base is the tree that the view's changes are over.
func (v *View) Base() image.Tree { return v.s.base }

// BaseID is the base's checkpoint id.
func (v *View) BaseID() string { return v.cfg.BaseID }

// Layers lists the layers that the view needs, the oldest first.
func (v *View) Layers() []LayerID {
	var ids []LayerID
	for _, l := range v.table {
		ids = append(ids, l.id)
	}
	return ids
}

func (v *View) node(ino uint64) (*node, error) {
	n, err := v.s.node(ino)
	if err == unix.ENOENT || err == nil && n.nlink == 0 {
		return nil, image.ErrNotExist
	}
	return n, err
}

// Node returns an inode. Its Content is zero where the bytes differ from every stored content that it is known to
// have: hash OpenFile's bytes.
func (v *View) Node(ino uint64) (image.Node, error) {
	n, err := v.node(ino)
	if err != nil {
		return image.Node{}, err
	}
	return n.image(), nil
}

func (v *View) Lookup(dir uint64, name string) (image.Dirent, error) {
	d, err := v.s.entry(dir, name)
	if err != nil {
		return image.Dirent{}, err
	}
	if d == nil {
		return image.Dirent{}, image.ErrNotExist
	}
	return image.Dirent{Name: d.name, Ino: d.ino, Pos: d.pos, Type: d.typ}, nil
}

func (v *View) ReadDir(dir, after uint64, yield func(image.Dirent) bool) error {
	err := v.s.readDir(dir, after, yield)
	if err == unix.ENOENT {
		return image.ErrNotExist
	}
	return err
}

func (v *View) NumEntries(dir uint64) (int, error) {
	n, err := v.node(dir)
	if err != nil {
		return 0, err
	}
	return v.s.entries(n)
}

func (v *View) NextIno() uint64 { return v.s.nextIno }

// Counts leaves inodes without a name out.
func (v *View) Counts() (inodes, bytes uint64) {
	inodes, bytes = uint64(v.s.inodes), uint64(v.s.sizes)
	for ino := range v.s.orphans {
		if n, ok := v.s.nodes.Get(ino); ok && n.nlink == 0 {
			inodes--
			if n.isReg() {
				bytes -= uint64(n.size)
			}
		}
	}
	return inodes, bytes
}

// OpenFile opens the bytes of a file or the target of a symlink.
func (v *View) OpenFile(in image.Node) (content.Reader, error) {
	n, err := v.node(in.Ino)
	if err != nil {
		return nil, err
	}
	switch {
	case n.isSymlink() && n.base == nil:
		return stringReader(n.target), nil
	case n.isReg() || n.isSymlink():
		if n.pristine() && !n.base.content.IsZero() {
			return v.contents.Open(n.base.content)
		}
		return &fileReader{s: v.s, n: n, table: v.table, contents: v.contents}, nil
	}
	return nil, unix.EINVAL
}

// Changed yields the inodes that may differ from the base's: exists is false for those that are gone.
func (v *View) Changed(yield func(ino uint64, exists bool) bool) {
	v.s.nodes.Scan(func(ino uint64, n *node) bool {
		exists := n.flags&nodeGone == 0 && n.nlink > 0
		if !exists && n.flags&nodeBase == 0 {
			return true // made and unlinked here
		}
		return yield(ino, exists)
	})
}

// ChangedEntries yields the names that may differ from the base's; the entry's Ino is 0 where there is none any more.
func (v *View) ChangedEntries(yield func(dir uint64, d image.Dirent) bool) {
	v.s.names.Scan(func(d *dirent) bool {
		return yield(d.dir, image.Dirent{Name: d.name, Ino: d.ino, Pos: d.pos, Type: d.typ})
	})
}

// ChangedRanges yields the ranges of a file whose bytes don't come from its base content at the same place, in
// order, zeroes included. A file that has no base content has changed as a whole.
func (v *View) ChangedRanges(ino uint64, yield func(off, n int64) bool) error {
	n, err := v.node(ino)
	if err != nil {
		return err
	}
	more := true
	n.ext.scan(0, func(x *extent) bool {
		if x.off >= n.baseLen {
			return false
		}
		more = yield(x.off, min(x.end(), n.baseLen)-x.off)
		return more
	})
	if more && n.size > n.baseLen {
		yield(n.baseLen, n.size-n.baseLen)
	}
	return nil
}

// Fork opens a fork of a view that Rotate gave: cfg.Layers are the view's layers and a new live one. Nothing is
// replayed.
func (v *View) Fork(cfg Config) (*Fork, error) {
	if v.live {
		return nil, fmt.Errorf("fork %s: a view of a live layer can't be forked; rotate", cfg.ForkID)
	}
	cfg.Base = v.s.base
	if cfg.Contents == nil {
		cfg.Contents = v.contents
	}
	if len(cfg.Layers) != len(v.table)+1 {
		return nil, fmt.Errorf("fork %s: %d layers over a view of %d", cfg.ForkID, len(cfg.Layers), len(v.table))
	}
	for i, l := range v.table {
		if cfg.Layers[i] != l.id {
			return nil, fmt.Errorf("fork %s: layer %d is %s, the view's is %s", cfg.ForkID, i, cfg.Layers[i], l.id)
		}
	}
	f, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	if size, err := f.table[len(f.table)-1].size(fileJournal); err != nil || size > 0 {
		f.discard()
		if err == nil {
			err = fmt.Errorf("fork %s: its live layer exists already; open it instead", cfg.ForkID)
		}
		return nil, err
	}
	s := v.s.clone()
	if err := s.dropOrphans(); err != nil {
		f.discard()
		return nil, err
	}
	s.inline = 0
	for _, l := range v.table {
		f.unsync = append(f.unsync, unsynced{l: l, data: true})
	}
	if err := f.start(s, v.seq); err != nil {
		f.discard()
		return nil, err
	}
	if len(v.s.orphans) > 0 {
		// The layers below still say that these exist.
		f.w.pendDropOrphans()
	}
	return f, nil
}
