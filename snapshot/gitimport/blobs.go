package gitimport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"tine/snapshot/content"
	"tine/snapshot/gitimport/objects"
)

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

// met records a blob of the history.
func (im *importer) met(e *entry, dir string) {
	if _, ok := im.blobAt[e.id]; !ok {
		im.blobAt[e.id] = len(im.blobs)
		im.blobs = append(im.blobs, blobRef{id: e.id, dir: dir, name: e.name})
	}
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

// keepLarge keeps the alias of a large blob's id, so that its loose object can be derived without the repository.
func (im *importer) keepLarge(b *blobRef) error {
	r, err := im.store.Open(blobID(b.id))
	if err == nil {
		return r.Close()
	}
	var missing *content.MissingError
	if !errors.As(err, &missing) {
		return err
	}
	// No source has been registered for this repository: give the store the loose object itself, which it knows by the
	// blob inside.
	data := newSpool(im.tempDir())
	defer data.Close()
	if err := im.readBlob(b, data); err != nil {
		return err
	}
	l := content.NewLoose(data)
	id, err := im.store.PutReader(l, l.Size(), content.SHA1)
	if err == nil && !bytes.Equal(id.Bytes(), b.id[:]) {
		err = &CorruptError{ID: b.id, What: "the blob of " + b.path(), Why: "stored, it has the id " + id.String()}
	}
	return err
}
