package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"tine/snapshot/content"
)

// Put stores data, which it doesn't keep, as the contents of a file in a checkpoint of the format, and returns its id. It
// is durable after Sync. The caller has a shared hold from before the first Put until what it publishes is published.
func (s *Store) Put(data []byte, f content.ObjectFormat) (content.ID, error) {
	if err := s.requireHold(); err != nil {
		return content.ID{}, err
	}
	sum := content.HashBytes(data, f)
	if sum.ID.Algo == content.Tree256 || sum.ID.Algo.IsLoose() {
		return s.putReader(content.FromBytes(data), int64(len(data)), f)
	}
	return sum.ID, s.keepSum(sum, data, true)
}

// PutReader is Put for the first size bytes of r, which must not change meanwhile. Ranges that r knows to be holes
// (content.Sparse) are not read.
func (s *Store) PutReader(r io.ReaderAt, size int64, f content.ObjectFormat) (content.ID, error) {
	if err := s.requireHold(); err != nil {
		return content.ID{}, err
	}
	return s.putReader(r, size, f)
}

func (s *Store) putReader(r io.ReaderAt, size int64, f content.ObjectFormat) (content.ID, error) {
	if blob, ok, err := content.OpenLoose(r, size); err != nil {
		return content.ID{}, err
	} else if ok {
		id, err := s.putBlob(blob, f)
		return id.Loose(), err
	}
	if size > content.MaxSmall {
		return s.putLarge(r, size, nil)
	}
	data := make([]byte, size)
	if err := content.ReadFull(r, data, 0); err != nil {
		return content.ID{}, err
	}
	sum := content.Sum{ID: content.BlobID(data, f), Size: size, SHA256: sha256.Sum256(data)}
	return sum.ID, s.keepSum(sum, data, true)
}

// PutChanged is PutReader for a content of more than content.MaxSmall that differs from the stored Tree256 content base
// only in chunks for which changed reports true (and in length): the others are neither read nor hashed.
func (s *Store) PutChanged(r io.ReaderAt, size int64, base content.ID, changed func(chunk int) bool, f content.ObjectFormat) (content.ID, error) {
	if err := s.requireHold(); err != nil {
		return content.ID{}, err
	}
	old, err := s.Open(base)
	if err != nil {
		return s.putReader(r, size, f)
	}
	defer old.Close()
	list, ok := old.(*chunkReader)
	if !ok || size <= content.MaxSmall {
		return s.putReader(r, size, f)
	}
	// A loose encoding differs from what it was in its checksum at least, that is, in its end.
	if loose, ok, err := content.OpenLoose(r, size); err != nil {
		return content.ID{}, err
	} else if ok {
		id, err := s.putBlob(loose, f)
		return id.Loose(), err
	}
	return s.putLarge(r, size, func(i int) ([32]byte, bool) {
		if i >= len(list.chunks) || content.ChunkLen(list.size, i) != content.ChunkLen(size, i) || changed(i) {
			return [32]byte{}, false
		}
		return list.chunks[i], true
	})
}

// putBlob stores a blob under its git id whatever its size, for loose encodings.
func (s *Store) putBlob(blob content.Reader, f content.ObjectFormat) (content.ID, error) {
	if blob.Size() <= content.MaxSmall {
		data, err := content.ReadAll(blob, content.MaxSmall)
		if err != nil {
			return content.ID{}, err
		}
		id := content.BlobID(data, f)
		return id, s.keep(id, data, true)
	}
	id, err := content.BlobIDOf(blob, blob.Size(), f)
	if err != nil {
		return content.ID{}, err
	}
	large, err := s.putLarge(blob, blob.Size(), nil)
	if err != nil {
		return content.ID{}, err
	}
	return id, s.setSame(id, large, blob.Size())
}

// keep stores data under its git blob id, already verified.
func (s *Store) keep(id content.ID, data []byte, durableNow bool) error {
	return s.keepSum(content.Sum{ID: id, Size: int64(len(data)), SHA256: sha256.Sum256(data)}, data, durableNow)
}

func (s *Store) keepSum(sum content.Sum, data []byte, durableNow bool) error {
	if err := s.writable(); err != nil {
		return err
	}
	if isEmpty(sum.ID) {
		return nil
	}
	had, err := s.stored(sum)
	if err != nil {
		return err
	}
	rec := record{key: contentKey(sum.ID), kind: kindBytes, sha256: sum.SHA256, size: sum.Size}
	if len(data) > inlineLimit {
		// The file is looked at even if a record says that it is there: hydration doesn't sync it.
		if err := s.putObject(sum.ID, data, durableNow); err != nil {
			return err
		}
		rec.kind, data = kindObject, nil
	}
	if had {
		return nil
	}
	return s.out.append(rec, data)
}

// stored reports whether there is a record of sum's content; one of other bytes is a collision.
func (s *Store) stored(sum content.Sum) (bool, error) {
	had := false
	var collision error
	err := s.segs.find(contentKey(sum.ID), func(l location) bool {
		if l.kind != kindBytes && l.kind != kindObject {
			return true
		}
		if l.sha256 != sum.SHA256 {
			collision = &CollisionError{ID: sum.ID, Had: l.sha256, Got: sum.SHA256}
			return false
		}
		had = true
		return false
	})
	return had, errors.Join(err, collision)
}

// putLarge stores a content of more than content.MaxSmall as chunks. known gives the digests of chunks that needn't be read.
func (s *Store) putLarge(r io.ReaderAt, size int64, known func(chunk int) ([32]byte, bool)) (content.ID, error) {
	if err := s.writable(); err != nil {
		return content.ID{}, err
	}
	chunks := make([][32]byte, content.NumChunks(size))
	g, ctx := errgroup.WithContext(context.Background())
	var next atomic.Int64
	for range min(runtime.GOMAXPROCS(0), len(chunks)) {
		g.Go(func() error {
			buf := make([]byte, content.ChunkSize)
			for ctx.Err() == nil {
				i := int(next.Add(1) - 1)
				if i >= len(chunks) {
					return nil
				}
				if known != nil {
					if d, ok := known(i); ok {
						chunks[i] = d
						continue
					}
				}
				var err error
				if chunks[i], err = s.putChunk(r, buf[:content.ChunkLen(size, i)], int64(i)*content.ChunkSize); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return content.ID{}, err
	}
	id := content.TreeRoot(size, chunks)
	had := false
	if err := s.segs.find(contentKey(id), func(location) bool { had = true; return false }); err != nil || had {
		return id, err
	}
	data := make([]byte, 0, 32*len(chunks))
	for i := range chunks {
		data = append(data, chunks[i][:]...)
	}
	return id, s.out.append(record{key: contentKey(id), kind: kindChunks, size: size}, data)
}

func (s *Store) putChunk(r io.ReaderAt, buf []byte, off int64) ([32]byte, error) {
	full := len(buf) == content.ChunkSize
	if full && content.IsHole(r, off, int64(len(buf))) {
		return content.ZeroChunk(content.ChunkSize), nil
	}
	if err := content.ReadFull(r, buf, off); err != nil {
		return [32]byte{}, fmt.Errorf("read at %d: %w", off, err)
	}
	d := content.HashChunk(buf)
	if full && d == content.ZeroChunk(content.ChunkSize) {
		return d, nil
	}
	sum := content.Sum{ID: content.ID{Algo: content.Chunk256, Digest: d}, Size: int64(len(buf)), SHA256: d}
	had, err := s.stored(sum)
	if err != nil || had {
		return d, err
	}
	return d, s.out.append(record{key: contentKey(sum.ID), kind: kindBytes, sha256: d, size: sum.Size}, buf)
}

// setSame records that id (a git blob id) names the same bytes as other.
func (s *Store) setSame(id, other content.ID, size int64) error {
	had := false
	err := s.segs.find(contentKey(id), func(l location) bool { had = l.kind == kindSame; return !had })
	if err != nil || had {
		return err
	}
	return s.out.append(record{key: contentKey(id), kind: kindSame, size: size}, encodeID(other))
}
