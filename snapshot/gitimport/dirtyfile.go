package gitimport

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tine/snapshot/content"
	"tine/snapshot/gitimport/objects"
	"tine/snapshot/hostdir"
)

func (w *workTree) symlink(path string, it *item, target string) error {
	id, err := w.im.store.Put([]byte(target), content.SHA1)
	if err != nil {
		return err
	}
	it.size, it.content = int64(len(target)), id
	w.compare(path, it, objects.ID(id.Bytes()), modeSymlink)
	return nil
}

// file hashes a file and stores it unless the repository has it already.
func (w *workTree) file(path string, it *item, f *hostdir.File) error {
	mode := uint32(modeFile)
	if it.mode&0o100 != 0 {
		mode = modeExec
	}
	sum, err := content.Hash(f, f.Size(), content.SHA1)
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Name(), err)
	}
	it.size, it.content = f.Size(), sum.ID
	var blob objects.ID
	switch {
	case sum.ID.Algo == content.GitSHA1:
		blob = objects.ID(sum.ID.Bytes())
	case sum.ID.Algo == content.Tree256:
		if h := w.head[path]; h != nil && w.im.blobs[w.im.blobAt[h.blob]].large == sum.ID {
			blob = h.blob
		}
	}
	if i, ok := w.im.blobAt[blob]; ok {
		it.content, it.kind = w.im.contentOf(&w.im.blobs[i])
	} else if it.content, err = w.im.store.PutReader(f, f.Size(), content.SHA1); err != nil {
		return err
	}
	if now, err := f.Stat(); err != nil {
		return err
	} else if !now.Same(f.Info) || it.content != sum.ID {
		return &RequestError{fmt.Sprintf("%s was written to while it was read; try again when it is at rest", f.Name())}
	}
	w.compare(path, it, blob, mode)
	return nil
}

// compare links an index entry to a file that is as in HEAD. Such a file has the commit's time, others keep their own.
func (w *workTree) compare(path string, it *item, blob objects.ID, mode uint32) {
	if h := w.head[path]; h != nil && h.mode == mode && h.blob == blob {
		h.at, it.mtime = it, w.im.when
	}
}

// prune drops directories that have nothing left of what was in them; empty ones stay. It also puts children into the
// order of git trees, so that a clean work tree gives the very checkpoint that its commit gives.
func prune(dir *item) {
	slices.SortFunc(dir.kids, func(a, b *item) int { return strings.Compare(a.treeName(), b.treeName()) })
	kept := dir.kids[:0]
	for _, k := range dir.kids {
		if k.mode&unix.S_IFMT == unix.S_IFDIR && k.gitlink == nil {
			prune(k)
			if len(k.kids) == 0 && k.hadFiles {
				continue
			}
		}
		kept = append(kept, k)
	}
	dir.kids = kept
}
