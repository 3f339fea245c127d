package gitimport

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"tine/snapshot"
	"tine/snapshot/content"
	"tine/snapshot/gitimport/objects"
	"tine/snapshot/image"
)

// importer is one import under way.
type importer struct {
	req   Request
	store *snapshot.Store
	repo  *Repository
	db    *objects.DB
	trees *trees
	when  image.Time

	blobs    []blobRef // in the order in which they were first met
	blobAt   map[objects.ID]int
	warnings []string
}

// blobRef is one blob of the history.
type blobRef struct {
	id        objects.ID
	dir, name string // where it was first met
	size      int64
	large     content.ID // for those over content.MaxSmall
}

func (b *blobRef) path() string { return join(b.dir, b.name) }

// emptyBlob is known to git whether it is there or not.
var emptyBlob = objects.HashObject(objects.Blob, nil)

// Import makes a checkpoint of a commit, with a .git of its own, and publishes it in the store. It reads commits and
// trees, of blobs their sizes only; those over content.MaxSmall are read and stored. A failed import publishes nothing.
// One commit and the same options give the same checkpoint id everywhere and always (L3).
func Import(ctx context.Context, store *snapshot.Store, req Request) (*Result, error) {
	if err := req.validate(); err != nil {
		return nil, err
	}
	repo, err := Locate(req.Repo)
	if err != nil {
		return nil, err
	}
	return repo.Import(ctx, store, req)
}

// Import is Import for a repository that was located already; Request.Repo is not looked at.
func (r *Repository) Import(ctx context.Context, store *snapshot.Store, req Request) (*Result, error) {
	if err := req.validate(); err != nil {
		return nil, err
	}
	hold, err := store.Shared(ctx)
	if err != nil {
		return nil, err
	}
	defer hold.Release()
	im := &importer{req: req, store: store, repo: r, db: r.Objects(), blobAt: map[objects.ID]int{}}
	defer im.db.Close()
	im.trees = newTrees(r, im.db)
	return im.run(ctx)
}

func (im *importer) run(ctx context.Context) (*Result, error) {
	tip, err := im.repo.Resolve(im.db, im.req.Rev)
	if err != nil {
		return nil, err
	}
	past, err := im.repo.history(ctx, im.db, tip, im.req.depth())
	if err != nil {
		return nil, err
	}
	im.when = image.Time{Sec: past.commits[0].seconds}
	if im.req.rewrites() {
		if past, err = im.rewrite(ctx, past); err != nil {
			return nil, err
		}
	}
	head := past.commits[0]
	if _, err := im.trees.keep(head.tree, ""); err != nil {
		return nil, err
	}

	root := newDir("", im.when)
	index, cached, err := im.walkHead(ctx, head.tree, root)
	if err != nil {
		return nil, err
	}
	pack := newSpool(im.tempDir())
	defer pack.Close()
	packed, err := im.packHistory(ctx, past, pack)
	if err != nil {
		return nil, err
	}
	if err := im.sizes(ctx); err != nil {
		return nil, err
	}
	if err := im.storeLarge(ctx); err != nil {
		return nil, err
	}
	treeID := head.tree.String()
	if im.req.Dirty {
		if root, err = im.workTree(ctx, index); err != nil {
			return nil, err
		}
		treeID = ""
	} else if err := im.complete(index); err != nil {
		return nil, err
	}
	im.warnAttributes(index)

	var files, bytes int64
	root.count(&files, &bytes)
	numbers := &numbering{next: image.Root}
	numbers.number(root)
	dot, err := im.dotGit(past, packed, pack, index, cached)
	if err != nil {
		return nil, err
	}
	numbers.number(dot)
	root.add(dot)

	b := image.NewBuilder(content.SHA1)
	root.emit(b)
	b.SetNextIno(numbers.next)
	encoded, err := b.Encode()
	if err != nil {
		return nil, err
	}
	res := &Result{SourceCommit: tip.String(), WorkspaceCommit: head.id.String(), Warnings: im.warnings, Repository: im.repo}
	draft := snapshot.Draft{
		Image: encoded, TreeID: treeID, Commit: tip.String(), Files: files, Bytes: bytes,
		Provenance: im.req.provenance(im.repo, tip, head.id),
	}
	if im.req.Eager {
		if err := im.copyBlobs(ctx); err != nil {
			return nil, err
		}
	}
	if !im.req.Eager && len(im.blobs) > 0 {
		if res.Source, err = im.store.AddSource(sourceKind, im.repo.sourceConfig()); err != nil {
			return nil, err
		}
		draft.Sources = []string{res.Source}
	}
	res.Checkpoint, err = im.store.Publish(ctx, draft)
	if err != nil {
		return nil, err
	}
	return res, nil
}

func (im *importer) rewrite(ctx context.Context, past *history) (*history, error) {
	w := &rewriter{trees: im.trees}
	var err error
	if w.subpath, err = cleanSubpath(im.req.Subpath); err != nil {
		return nil, err
	}
	if w.excludes, err = compileExcludes(im.req.Exclude); err != nil {
		return nil, err
	}
	if past, err = w.run(ctx, past); err != nil {
		return nil, err
	}
	for i, p := range w.excludes {
		if !w.matched[i] {
			im.warnings = append(im.warnings, fmt.Sprintf("exclude %q matched nothing", p))
		}
	}
	if n := len(w.copies); n > 0 {
		im.warnings = append(im.warnings, fmt.Sprintf("%d files that are kept have the bytes of excluded ones: %s", n, some(w.copies, 3)))
	}
	return past, nil
}

// some lists at most n paths.
func some(paths []string, n int) string {
	text := ""
	for i, p := range paths {
		switch {
		case i == n:
			return text + ", ..."
		case i > 0:
			text += ", "
		}
		text += strconv.Quote(p)
	}
	return text
}

// tempDir is on the store's disk, where there is room for what comes from a repository.
func (im *importer) tempDir() string { return im.store.Dir() }

// met records a blob of the history.
func (im *importer) met(e *entry, dir string) {
	if _, ok := im.blobAt[e.id]; !ok {
		im.blobAt[e.id] = len(im.blobs)
		im.blobs = append(im.blobs, blobRef{id: e.id, dir: dir, name: e.name})
	}
}

// walkHead makes the items below dir and the index of the selected commit, in the index's order.
func (im *importer) walkHead(ctx context.Context, id objects.ID, dir *item) ([]tracked, *cacheTree, error) {
	var index []tracked
	var walk func(id objects.ID, path string, dir *item) (*cacheTree, error)
	walk = func(id objects.ID, path string, dir *item) (*cacheTree, error) {
		t, err := im.trees.keep(id, path)
		if err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c := &cacheTree{name: dir.name, id: id}
		dir.kids = make([]*item, 0, len(t.entries)+1)
		for i := range t.entries {
			e := &t.entries[i]
			at := join(path, e.name)
			kid := dir.add(&item{name: e.name, mtime: im.when, blob: e.id})
			switch e.mode {
			case modeTree:
				kid.mode = unix.S_IFDIR | 0o755
				sub, err := walk(e.id, at, kid)
				if err != nil {
					return nil, err
				}
				c.subs = append(c.subs, sub)
				c.files += sub.files
				continue
			case modeGitlink:
				kid.mode = unix.S_IFDIR | 0o755
				kid.gitlink = e.id[:]
			case modeSymlink:
				kid.mode = unix.S_IFLNK | 0o777
				im.met(e, path)
			case modeExec:
				kid.mode = unix.S_IFREG | 0o755
				im.met(e, path)
			default:
				kid.mode = unix.S_IFREG | 0o644
				im.met(e, path)
			}
			c.files++
			index = append(index, tracked{path: at, mode: e.mode, blob: e.id, at: kid})
		}
		return c, nil
	}
	im.req.progress("trees", 0, 0)
	cached, err := walk(id, "", dir)
	return index, cached, err
}

// sizes looks up the sizes of all blobs.
func (im *importer) sizes(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	const batch = 256
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for ctx.Err() == nil {
				from := int(next.Add(batch)) - batch
				if from >= len(im.blobs) {
					return nil
				}
				for i := from; i < min(from+batch, len(im.blobs)); i++ {
					b := &im.blobs[i]
					if b.id == emptyBlob {
						continue
					}
					size, err := im.db.Size(b.id)
					if err != nil {
						return im.repo.objectError(err, b.id, "the blob of "+b.path())
					}
					b.size = size
				}
				im.req.progress("sizes", int64(from), int64(len(im.blobs)))
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}

// storeLarge reads the blobs whose content id is not their blob id.
func (im *importer) storeLarge(ctx context.Context) error {
	for i := range im.blobs {
		b := &im.blobs[i]
		if b.size <= content.MaxSmall {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		im.req.progress("large files", 0, 0)
		data := newSpool(im.tempDir())
		err := im.readBlob(b, data)
		if err == nil {
			b.large, err = im.store.PutReader(data, data.Size(), content.SHA1)
		}
		data.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (im *importer) readBlob(b *blobRef, to *spool) error {
	what := "the blob of " + b.path()
	typ, n, err := im.db.Stream(b.id, to)
	switch {
	case err != nil:
		return im.repo.objectError(err, b.id, what)
	case typ != objects.Blob:
		return &CorruptError{ID: b.id, What: what, Why: "it is a " + typ.String()}
	case n != b.size:
		return &CorruptError{ID: b.id, What: what, Why: fmt.Sprintf("it has %d bytes, its header says %d", n, b.size)}
	}
	return to.flush()
}

// complete gives the items of the index their contents and sizes.
func (im *importer) complete(index []tracked) error {
	for i := range index {
		f := &index[i]
		if f.mode == modeGitlink {
			continue
		}
		b := &im.blobs[im.blobAt[f.blob]]
		if f.mode == modeSymlink && (b.size == 0 || b.size >= unix.PathMax) {
			return &PathError{f.path, fmt.Sprintf("a symlink with a target of %d bytes", b.size)}
		}
		f.at.size = b.size
		f.at.content, f.at.kind = im.contentOf(b)
	}
	return nil
}

func (im *importer) contentOf(b *blobRef) (content.ID, image.Kind) {
	switch {
	case !b.large.IsZero():
		return b.large, image.KindNone // the image knows a chunk list by its id
	case im.req.Eager || b.size == 0:
		return blobID(b.id), image.KindStored
	}
	return blobID(b.id), image.KindGit
}

// copyBlobs stores the contents of all blobs (Eager).
func (im *importer) copyBlobs(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(im.blobs) {
					return nil
				}
				if err := im.copyBlob(&im.blobs[i]); err != nil {
					return err
				}
				if i%256 == 0 {
					im.req.progress("contents", int64(i), int64(len(im.blobs)))
				}
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}

func (im *importer) copyBlob(b *blobRef) error {
	if b.size == 0 {
		return nil
	}
	if b.large.IsZero() {
		what := "the blob of " + b.path()
		typ, data, err := im.db.Read(b.id)
		switch {
		case err != nil:
			return im.repo.objectError(err, b.id, what)
		case typ != objects.Blob || int64(len(data)) != b.size:
			return &CorruptError{ID: b.id, What: what, Why: fmt.Sprintf("it is a %s of %d bytes", typ, len(data))}
		}
		_, err = im.store.Put(data, content.SHA1)
		return err
	}
	return im.keepLarge(b)
}
