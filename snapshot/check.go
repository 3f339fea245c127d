package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tine/snapshot/content"
	"tine/snapshot/durable"
	"tine/snapshot/image"
)

// CheckOptions say what Check looks at.
type CheckOptions struct {
	// Checkpoint (a full id) checks one checkpoint and what it reaches; "" checks everything.
	Checkpoint string
	// Full reads every stored byte and verifies it against its id, also in the sources; otherwise contents are only looked for.
	Full bool
	// Repair rebuilds indexes from their segments, takes lost records out of them so that contents can be fetched again, and
	// removes what crashed processes left in tmp. It needs the store for itself.
	Repair bool
}

// Problem is something that Check found wrong.
type Problem struct {
	// Kind is "segment", "index", "content", "image", "checkpoint", "name" or "source".
	Kind string
	// Object names it: a file in the store, a content id, a checkpoint id, a name.
	Object string
	// Checkpoint is the one that suffers, Path a file of it that does; "" where unknown.
	Checkpoint, Path string
	Err              error
	// Repaired: the next check won't find it.
	Repaired bool
}

func (p Problem) String() string {
	s := p.Kind + " " + p.Object
	if p.Checkpoint != "" {
		s += " of checkpoint " + short(p.Checkpoint)
	}
	if p.Path != "" {
		s += fmt.Sprintf(" (%q)", p.Path)
	}
	s += ": " + p.Err.Error()
	if p.Repaired {
		s += " (repaired)"
	}
	return s
}

// CheckStats is what Check has looked at.
type CheckStats struct {
	Checkpoints int
	Contents    int   // that checkpoints use, each once
	Stored      int   // records in segments
	Bytes       int64 // read and verified
	InSources   int   // contents that only sources have
	Problems    int
	Repaired    int
}

// Check looks for damage and tells report of each problem. The error is about checking itself; a damaged store is no error.
func (s *Store) Check(ctx context.Context, opt CheckOptions, report func(Problem)) (CheckStats, error) {
	c := &checker{ctx: ctx, s: s, opt: opt, seen: map[content.ID]error{}, gone: dependents{}}
	c.report = func(p Problem) {
		c.stats.Problems++
		if p.Repaired {
			c.stats.Repaired++
		}
		if report != nil {
			report(p)
		}
	}
	if opt.Repair {
		h, err := s.Exclusive(ctx)
		if err != nil {
			return c.stats, err
		}
		defer h.Release()
	}
	if _, err := s.segs.reload(); err != nil {
		return c.stats, err
	}
	if opt.Checkpoint == "" {
		if err := c.segments(); err != nil {
			return c.stats, err
		}
	}
	if err := c.sources(); err != nil {
		return c.stats, err
	}
	err := c.checkpoints()
	c.gone.report(c.report)
	return c.stats, err
}

type checker struct {
	ctx    context.Context
	s      *Store
	opt    CheckOptions
	report func(Problem)
	stats  CheckStats
	seen   map[content.ID]error // contents that were looked at: what is wrong, or nil
	gone   dependents
}

func (c *checker) sources() error {
	if _, err := c.s.Sources(); err != nil {
		c.report(Problem{Kind: "source", Object: "sources", Err: err})
	}
	return nil
}

func (c *checker) checkpoints() error {
	ids, err := c.s.ids()
	if err != nil {
		return err
	}
	// Contents are published before the checkpoint that names them, so the index has to be as new as the list.
	if _, err := c.s.segs.reload(); err != nil {
		return err
	}
	known := map[string]bool{}
	for _, id := range ids {
		known[id] = true
		if c.opt.Checkpoint != "" && c.opt.Checkpoint != id {
			continue
		}
		if err := c.checkpoint(id); err != nil {
			return err
		}
	}
	if c.opt.Checkpoint != "" {
		if !known[c.opt.Checkpoint] {
			return fmt.Errorf("checkpoint %s: %w", short(c.opt.Checkpoint), ErrNotFound)
		}
		return nil
	}
	names, err := c.s.Names()
	if err != nil {
		c.report(Problem{Kind: "name", Object: "names", Err: err})
	}
	for _, n := range names {
		if !known[n.Checkpoint] {
			c.report(Problem{Kind: "name", Object: n.Name, Err: fmt.Errorf("checkpoint %s: %w", short(n.Checkpoint), ErrNotFound)})
		}
	}
	return nil
}

func (c *checker) checkpoint(id string) error {
	c.stats.Checkpoints++
	m, err := c.s.load(id)
	if errors.Is(err, ErrNotFound) {
		return nil // removed meanwhile
	}
	if err != nil {
		c.report(Problem{Kind: "checkpoint", Object: id, Err: err})
		return nil
	}
	tree, err := c.s.Tree(id)
	if err == nil {
		err = tree.Verify()
	}
	if err != nil {
		c.report(Problem{Kind: "image", Object: imageName(id, m.Base), Checkpoint: id, Err: err})
		return c.ctx.Err()
	}
	var bad []content.ID
	err = tree.EachContent(func(ref image.ContentRef) bool {
		if c.content(ref.ID) != nil {
			bad = append(bad, ref.ID)
		}
		return c.ctx.Err() == nil
	})
	if err != nil {
		c.report(Problem{Kind: "image", Object: imageName(id, m.Base), Checkpoint: id, Err: err})
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	for _, b := range bad {
		if c.gone.add(m, b, c.seen[b], func() string { return findContent(tree, b) }) {
			continue
		}
		c.report(Problem{Kind: "content", Object: b.String(), Checkpoint: id, Path: findContent(tree, b), Err: c.seen[b]})
	}
	if len(bad) == 0 && c.opt.Full && m.TreeID != "" {
		raw, err := GitTree(c.ctx, tree, m.Identity.ObjectFormat, c.s.GitID)
		if got := fmt.Sprintf("%x", raw); err == nil && got != m.TreeID {
			err = fmt.Errorf("its tree id is %s, the manifest says %s", got, m.TreeID)
		}
		if err != nil {
			c.report(Problem{Kind: "checkpoint", Object: id, Err: err})
		}
	}
	return c.ctx.Err()
}

// content looks for a content once.
func (c *checker) content(id content.ID) error {
	if err, ok := c.seen[id]; ok {
		return err
	}
	c.stats.Contents++
	err := c.lookAt(id)
	c.seen[id] = err
	return err
}

func (c *checker) lookAt(id content.ID) error {
	if id.Algo.IsLoose() {
		return c.content(id.Blob())
	}
	if isEmpty(id) {
		return nil
	}
	r, err := c.s.openStored(id, 0)
	if r != nil {
		defer r.Close()
		if chunks, ok := r.(*chunkReader); ok && !c.opt.Full {
			return chunks.complete()
		}
		return c.readThrough(r)
	}
	if !id.Algo.IsBlob() {
		if err == nil {
			err = missingFrom(id, c.s.segs.problem())
		}
		return err
	}
	done, serr := c.s.fromSources(id, func(r content.Reader) error {
		if !c.opt.Full {
			return nil
		}
		got, err := content.BlobIDOf(r, r.Size(), id.Algo.Format())
		if err == nil && got != id {
			err = &content.CorruptError{ID: id, Got: got, Why: "the source has other bytes"}
		}
		c.stats.Bytes += r.Size()
		return err
	})
	if done {
		c.stats.InSources++
		return nil
	}
	if err == nil {
		err = serr
	}
	var corrupt *content.CorruptError
	if !errors.As(err, &corrupt) {
		err = missingFrom(id, err)
	}
	return err
}

// readThrough reads all of a stored content, which verifies it.
func (c *checker) readThrough(r content.Reader) error {
	if !c.opt.Full {
		return nil
	}
	buf := make([]byte, content.ChunkSize)
	for off := int64(0); off < r.Size(); off += int64(len(buf)) {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		n := min(int64(len(buf)), r.Size()-off)
		if err := content.ReadFull(r, buf[:n], off); err != nil {
			return err
		}
		c.stats.Bytes += n
	}
	return nil
}

// complete reports a chunk that has no record.
func (r *chunkReader) complete() error {
	for i, d := range r.chunks {
		if id := (content.ID{Algo: content.Chunk256, Digest: d}); !r.hole(i) && !r.store.Has(id) {
			return &content.MissingError{ID: r.id, Cause: &content.MissingError{ID: id}}
		}
	}
	return nil
}

// findContent returns a path of the tree that has the content, for people; "" if listing fails.
func findContent(t image.Tree, id content.ID) string {
	var found string
	var walk func(dir uint64, path []string) bool
	walk = func(dir uint64, path []string) bool {
		var list []image.Dirent
		if t.ReadDir(dir, 0, func(d image.Dirent) bool { list = append(list, d); return true }) != nil {
			return false
		}
		for _, d := range list {
			n, err := t.Node(d.Ino)
			if err != nil {
				return false
			}
			p := append(path[:len(path):len(path)], d.Name)
			if n.Content == id {
				found = strings.Join(p, "/")
				return false
			}
			if n.Mode&modeType == modeDir && !walk(d.Ino, p) {
				return false
			}
		}
		return true
	}
	walk(image.Root, nil)
	return found
}

// cleanTemp removes unfinished files; nobody is writing under the exclusive hold.
func (s *Store) cleanTemp() (n int, err error) {
	ents, err := s.readDir("tmp")
	if err != nil {
		return 0, err
	}
	for _, e := range ents {
		if strings.HasPrefix(e.Name(), durable.TempPrefix) {
			if err := s.fs.Remove(s.path("tmp", e.Name())); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}
