package seal

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"tine/overlay"
	"tine/snapshot"
	"tine/snapshot/content"
	"tine/snapshot/image"
)

// Options are how a view is sealed.
type Options struct {
	// Provenance is recorded with the checkpoint if it has a Kind, also where the checkpoint is there already.
	Provenance snapshot.Provenance
	// Progress is told of each stored content and its bytes, from several goroutines; nil is fine.
	Progress func(files int, bytes int64)
	// Workers hash and store contents; 0 means one for each processor.
	Workers int
}

// Result is a sealed view.
type Result struct {
	Checkpoint snapshot.Checkpoint
	// Changed: the checkpoint is not the base.
	Changed bool
	// Files counts the contents that were hashed, Bytes what was in them.
	Files int
	Bytes int64
}

// View seals a view and publishes the checkpoint. The caller holds the view, and with it the fork's layers, until then. The base
// (view.BaseID) is in the store. A failure publishes nothing and can be tried again; contents that were stored are
// found again then.
func View(ctx context.Context, store *snapshot.Store, v *overlay.View, opt Options) (Result, error) {
	r, err := seal(ctx, store, v, opt)
	if err != nil {
		return Result{}, fmt.Errorf("seal: %w", err)
	}
	return r, nil
}

func seal(ctx context.Context, store *snapshot.Store, v *overlay.View, opt Options) (Result, error) {
	hold, err := store.Shared(ctx)
	if err != nil {
		return Result{}, err
	}
	defer hold.Release()
	base, err := store.Checkpoint(v.BaseID())
	if err != nil {
		return Result{}, err
	}
	tree, err := store.Tree(base.ID)
	if err != nil {
		return Result{}, err
	}
	_, over, err := store.BaseImage(base.ID)
	if err != nil {
		return Result{}, err
	}
	delta, err := image.NewDelta(tree)
	if err != nil {
		return Result{}, err
	}
	s := &sealer{store: store, view: v, base: tree, delta: delta, opt: opt}
	nodes, err := s.collect()
	if err != nil {
		return Result{}, err
	}
	if err := s.contents(ctx, nodes); err != nil {
		return Result{}, err
	}
	counts, err := s.count(base, nodes)
	if err != nil {
		return Result{}, err
	}
	for i := range nodes {
		delta.SetNode(nodes[i])
	}
	v.ChangedEntries(func(dir uint64, d image.Dirent) bool {
		if d.Ino == 0 {
			delta.RemoveEntry(dir, d.Name)
		} else {
			delta.SetEntry(dir, d.Name, d.Ino)
		}
		return true
	})
	delta.SetNextIno(v.NextIno())
	enc, err := delta.Encode()
	if err != nil {
		return Result{}, err
	}
	r := Result{Checkpoint: base, Files: s.files, Bytes: s.bytes}
	if enc.Identity().CheckpointID() == base.ID {
		return r, store.AddProvenance(base.ID, opt.Provenance)
	}
	r.Changed = true
	r.Checkpoint, err = store.Publish(ctx, snapshot.Draft{
		Image: enc, Base: over, Files: counts.files, Bytes: counts.bytes, Parent: base.ID, Sources: base.Sources,
		Provenance: opt.Provenance,
	})
	return r, err
}

type sealer struct {
	store *snapshot.Store
	view  *overlay.View
	base  *image.Image
	delta *image.Delta
	opt   Options
	files int
	bytes int64
}

// collect lists the changed inodes that exist and takes the others out of the delta.
func (s *sealer) collect() (nodes []image.Node, err error) {
	s.view.Changed(func(ino uint64, exists bool) bool {
		if !exists {
			s.delta.RemoveNode(ino)
			return true
		}
		var n image.Node
		if n, err = s.view.Node(ino); err == nil {
			nodes = append(nodes, n)
		}
		return err == nil
	})
	return nodes, err
}

// contents stores what the changed files and symlinks hold and sets their ids.
func (s *sealer) contents(ctx context.Context, nodes []image.Node) error {
	workers := s.opt.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for i := range nodes {
		n := &nodes[i]
		if typ := n.Mode & unix.S_IFMT; typ != unix.S_IFREG && typ != unix.S_IFLNK || !n.Content.IsZero() {
			continue
		}
		if gctx.Err() != nil {
			break
		}
		s.files++
		s.bytes += n.Size
		g.Go(func() error {
			if err := gctx.Err(); err != nil {
				return err
			}
			id, err := s.content(gctx, *n)
			if err != nil {
				return fmt.Errorf("inode %d: %w", n.Ino, err)
			}
			n.Content = id
			if s.opt.Progress != nil {
				s.opt.Progress(1, n.Size)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// content stores one file's bytes.
func (s *sealer) content(ctx context.Context, n image.Node) (content.ID, error) {
	r, err := s.view.OpenFile(n)
	if err != nil {
		return content.ID{}, err
	}
	defer r.Close()
	if r.Size() != n.Size {
		return content.ID{}, fmt.Errorf("%d bytes instead of %d", r.Size(), n.Size)
	}
	in := cancelReader(ctx, r)
	if n.Size > content.MaxSmall {
		if old, err := s.base.Node(n.Ino); err == nil && old.Content.Algo == content.Tree256 {
			changed, err := s.changedChunks(n)
			if err != nil {
				return content.ID{}, err
			}
			return s.store.PutChanged(in, n.Size, old.Content, changed, s.base.Format())
		}
	}
	return s.store.PutReader(in, n.Size, s.base.Format())
}

// changedChunks tells which chunks of a file were written to.
func (s *sealer) changedChunks(n image.Node) (func(int) bool, error) {
	dirty := make([]bool, content.NumChunks(n.Size))
	err := s.view.ChangedRanges(n.Ino, func(off, length int64) bool {
		for i := off / content.ChunkSize; i*content.ChunkSize < off+length && i < int64(len(dirty)); i++ {
			dirty[i] = true
		}
		return true
	})
	return func(i int) bool { return dirty[i] }, err
}

// cancelReader is r until ctx ends, so that a huge file doesn't hold up a cancellation. What r knows of holes stays known.
func cancelReader(ctx context.Context, r content.Reader) io.ReaderAt {
	c := cancelable{ctx, r}
	if sparse, ok := r.(content.Sparse); ok {
		return struct {
			cancelable
			content.Sparse
		}{c, sparse}
	}
	return c
}

type cancelable struct {
	ctx context.Context
	r   io.ReaderAt
}

func (c cancelable) ReadAt(p []byte, off int64) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.ReadAt(p, off)
}
