package gitimport

import (
	"context"
	"fmt"
	"strconv"

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

// maxItems (8 Mi) bounds the files and directories of a checkpoint: ten trees that name each other are enough for more
// than any memory holds.
var maxItems = 8 << 20

// walkHead makes the items below dir and the index of the selected commit, in the index's order.
func (im *importer) walkHead(ctx context.Context, id objects.ID, dir *item) ([]tracked, *cacheTree, error) {
	var index []tracked
	items := 0
	var walk func(id objects.ID, path string, dir *item) (*cacheTree, error)
	walk = func(id objects.ID, path string, dir *item) (*cacheTree, error) {
		t, err := im.trees.keep(id, path)
		if err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if items += len(t.entries); items > maxItems {
			return nil, &FormatError{im.repo.CommonDir, fmt.Sprintf("the commit has more than %d files and directories", maxItems)}
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
