package gitimport

import (
	"context"

	"tine/snapshot/gitimport/objects"
)

// packHistory packs the commits and all their trees, and meets all their blobs. The order, commits first, then the trees
// of each, is a function of the history; a tree is a delta against the one at the same path of the commit before.
func (im *importer) packHistory(ctx context.Context, past *history, to *spool) (*packWriter, error) {
	w, err := newPackWriter(to)
	if err != nil {
		return nil, err
	}
	for _, c := range past.commits {
		if err := w.add(c.id, objects.Commit, c.raw, objects.ID{}, nil); err != nil {
			return nil, err
		}
	}
	var pack func(id objects.ID, path string, like objects.ID) error
	pack = func(id objects.ID, path string, like objects.ID) error {
		if w.has(id) || id == emptyTree && path != "" {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		t, err := im.trees.get(id, path)
		if err != nil {
			return err
		}
		var base *tree
		if !like.IsZero() && like != id {
			if base, err = im.trees.get(like, path); err != nil {
				return err
			}
			err = w.add(id, objects.Tree, t.raw, like, base.raw)
		} else {
			err = w.add(id, objects.Tree, t.raw, objects.ID{}, nil)
		}
		if err != nil {
			return err
		}
		k := 0
		for i := range t.entries {
			e := &t.entries[i]
			switch e.mode {
			case modeGitlink:
			case modeTree:
				var below objects.ID
				if base != nil {
					for k < len(base.entries) && treeLess(&base.entries[k], e) {
						k++
					}
					if k < len(base.entries) && base.entries[k].name == e.name && base.entries[k].mode == modeTree {
						below = base.entries[k].id
					}
				}
				if err := pack(e.id, join(path, e.name), below); err != nil {
					return err
				}
			default:
				im.met(e, path)
			}
		}
		return nil
	}
	var last objects.ID
	for i, c := range past.commits {
		if err := pack(c.tree, "", last); err != nil {
			return nil, err
		}
		last = c.tree
		im.req.progress("history", int64(i+1), int64(len(past.commits)))
	}
	return w, nil
}
