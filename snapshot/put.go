package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime"

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
		return s.putLarge(r, size, nil, f)
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
	}, 0)
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
	large, err := s.putLarge(blob, blob.Size(), nil, f)
	if err != nil {
		return content.ID{}, err
	}
	id, err := s.GitID(large, f) // known from storing it
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
	rec := record{key: contentKey(sum.ID), kind: kindBytes, sha256: sum.SHA256, size: sum.Size}
	if len(data) <= inlineLimit {
		return s.record(rec, data)
	}
	rec.kind = kindObject
	had, err := s.recorded(rec.key, rec.kind, nil, rec.sha256)
	if err != nil {
		return err
	}
	// The file is looked at even if a record says that it is there: hydration doesn't sync it.
	if err := s.putObject(sum.ID, data, durableNow); err != nil || had {
		return err
	}
	return s.out.append(rec, nil)
}

// recorded reports whether there is a whole record of key and kind with exactly data. A damaged one doesn't count: the content
// is stored again, which mends the store. If sum isn't zero, a record of the key with another one is a collision.
func (s *Store) recorded(key recordKey, kind recordKind, data []byte, sum [32]byte) (had bool, err error) {
	var collision error
	err = s.segs.find(key, func(l location) bool {
		if sum != ([32]byte{}) && (l.kind == kindBytes || l.kind == kindObject) && l.sha256 != sum {
			collision = &CollisionError{ID: key.id(), Had: l.sha256, Got: sum}
			return false
		}
		if l.kind != kind || l.length != int64(len(data)) {
			return true
		}
		there, rerr := s.segs.read(key, l)
		had = rerr == nil && bytes.Equal(there, data)
		return !had
	})
	return had, errors.Join(err, collision)
}

// record appends a record unless there is one.
func (s *Store) record(rec record, data []byte) error {
	had, err := s.recorded(rec.key, rec.kind, data, rec.sha256)
	if err != nil || had {
		return err
	}
	return s.out.append(rec, data)
}

// putLarge stores a content of more than content.MaxSmall as chunks. known, if it isn't nil, gives the digests of chunks that
// needn't be read. Where all of the content is read anyway, its git id in the format f (0 for none) is computed on the way and
// remembered.
func (s *Store) putLarge(r io.ReaderAt, size int64, known func(chunk int) ([32]byte, bool), f content.ObjectFormat) (content.ID, error) {
	if err := s.writable(); err != nil {
		return content.ID{}, err
	}
	chunks := make([][32]byte, content.NumChunks(size))
	git, err := s.putChunks(r, size, chunks, known, f)
	if err != nil {
		return content.ID{}, err
	}
	id := content.TreeRoot(size, chunks)
	if !git.IsZero() {
		if err := s.setGitID(id, git, size); err != nil {
			return content.ID{}, err
		}
	}
	data := make([]byte, 0, 32*len(chunks))
	for i := range chunks {
		data = append(data, chunks[i][:]...)
	}
	return id, s.record(record{key: contentKey(id), kind: kindChunks, size: size}, data)
}

// putChunks reads the chunks in order, and hashes and stores them in parallel.
func (s *Store) putChunks(r io.ReaderAt, size int64, chunks [][32]byte, known func(int) ([32]byte, bool), f content.ObjectFormat) (git content.ID, err error) {
	var gitHash hash.Hash
	if f != 0 && known == nil {
		gitHash = content.ObjectHash(f, "blob", size)
	}
	type job struct {
		i   int
		buf []byte
	}
	workers := min(runtime.GOMAXPROCS(0), len(chunks))
	free, jobs := make(chan []byte, workers+1), make(chan job)
	for range cap(free) {
		free <- make([]byte, content.ChunkSize)
	}
	g, ctx := errgroup.WithContext(context.Background())
	g.Go(func() error {
		defer close(jobs)
		for i := range chunks {
			if known != nil {
				if d, ok := known(i); ok {
					chunks[i] = d
					continue
				}
			}
			off, n := int64(i)*content.ChunkSize, content.ChunkLen(size, i)
			if n == content.ChunkSize && content.IsHole(r, off, n) {
				chunks[i] = content.ZeroChunk(n)
				gitHash = nil // a huge hole would have to be hashed; who needs the git id asks for it
				continue
			}
			var buf []byte
			select {
			case buf = <-free:
			case <-ctx.Done():
				return nil
			}
			if err := content.ReadFull(r, buf[:n], off); err != nil {
				return fmt.Errorf("read at %d: %w", off, err)
			}
			if gitHash != nil {
				gitHash.Write(buf[:n])
			}
			select {
			case jobs <- job{i, buf[:n]}:
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
	for range workers {
		g.Go(func() error {
			for j := range jobs {
				var err error
				if chunks[j.i], err = s.putChunk(j.buf); err != nil {
					return err
				}
				free <- j.buf[:content.ChunkSize]
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return git, err
	}
	if gitHash != nil {
		git.Algo = f.BlobAlgo()
		gitHash.Sum(git.Digest[:0])
	}
	return git, nil
}

func (s *Store) putChunk(data []byte) ([32]byte, error) {
	d := content.HashChunk(data)
	if len(data) == content.ChunkSize && d == content.ZeroChunk(content.ChunkSize) {
		return d, nil
	}
	key := contentKey(content.ID{Algo: content.Chunk256, Digest: d})
	return d, s.record(record{key: key, kind: kindBytes, sha256: d, size: int64(len(data))}, data)
}

// setGitID records the git id of a content that is named otherwise.
func (s *Store) setGitID(id, git content.ID, size int64) error {
	return s.record(record{key: gitIDKey(id, git.Algo.Format()), kind: kindGitID, size: size}, encodeID(git))
}

// setSame records that id (a git blob id) names the same bytes as other.
func (s *Store) setSame(id, other content.ID, size int64) error {
	return s.record(record{key: contentKey(id), kind: kindSame, size: size}, encodeID(other))
}
