package snapshot

import (
	"errors"
	"fmt"

	"tine/snapshot/content"
)

// chunkReader reads a Tree256 content by its chunk list. Chunks of zeroes are not stored.
type chunkReader struct {
	store  *Store
	id     content.ID
	size   int64
	chunks [][32]byte
}

// openChunks reads and verifies the chunk list at l.
func (s *Store) openChunks(id content.ID, l location) (*chunkReader, error) {
	data, err := s.segs.read(contentKey(id), l)
	if err != nil {
		return nil, &content.CorruptError{ID: id, Why: err.Error()}
	}
	r := &chunkReader{store: s, id: id, size: l.size, chunks: make([][32]byte, len(data)/32)}
	for i := range r.chunks {
		r.chunks[i] = [32]byte(data[32*i:])
	}
	if got := content.TreeRoot(l.size, r.chunks); got != id {
		return nil, &content.CorruptError{ID: id, Got: got, Why: fmt.Sprintf("its chunk list is that of %s", got)}
	}
	return r, nil
}

func (r *chunkReader) Size() int64  { return r.size }
func (r *chunkReader) Close() error { return nil }

// hole: only whole chunks of zeroes are left out of the store, a short last one is kept.
func (r *chunkReader) hole(i int) bool {
	return r.chunks[i] == content.ZeroChunk(content.ChunkSize) && content.ChunkLen(r.size, i) == content.ChunkSize
}

// NextData implements content.Sparse.
func (r *chunkReader) NextData(off int64) (start, end int64) {
	i := int(max(off, 0) / content.ChunkSize)
	for i < len(r.chunks) && r.hole(i) {
		i++
	}
	if i >= len(r.chunks) {
		return r.size, r.size
	}
	start = max(off, int64(i)*content.ChunkSize)
	for i < len(r.chunks) && !r.hole(i) {
		i++
	}
	return start, min(r.size, int64(i)*content.ChunkSize)
}

func (r *chunkReader) ReadAt(p []byte, off int64) (int, error) {
	part, eof := clamp(p, off, r.size)
	n := 0
	for n < len(part) {
		i := int(off / content.ChunkSize)
		in := off - int64(i)*content.ChunkSize
		k := int(min(int64(len(part)-n), content.ChunkLen(r.size, i)-in))
		if r.hole(i) {
			clear(part[n : n+k])
		} else if err := r.readChunk(part[n:n+k], i, in); err != nil {
			return n, err
		}
		n, off = n+k, off+int64(k)
	}
	return n, eof
}

func (r *chunkReader) readChunk(buf []byte, i int, off int64) error {
	id := content.ID{Algo: content.Chunk256, Digest: r.chunks[i]}
	length := content.ChunkLen(r.size, i)
	err := r.store.eachCopy(id, func(l location) error {
		if l.kind != kindBytes || l.length != length {
			return &content.CorruptError{ID: id, Why: fmt.Sprintf("a record of %d bytes instead of %d", l.length, length)}
		}
		f, err := r.store.segs.file(l.seg)
		if err != nil {
			return &content.CorruptError{ID: id, Why: err.Error()}
		}
		p := piece{store: r.store, id: id, file: f, off: l.off + recHeaderLen, size: length, where: fmt.Sprintf("segment %s at %d", l.seg, l.off)}
		return p.readAt(buf, off)
	})
	var missing *content.MissingError
	if errors.As(err, &missing) {
		return &content.MissingError{ID: r.id, Cause: err} // a part of it
	}
	return err
}

// eachCopy calls try for each record of id until one succeeds; after a fruitless first round it looks for records that
// other processes have published. The error is the last one of try, else a *content.MissingError.
func (s *Store) eachCopy(id content.ID, try func(location) error) error {
	var last error
	round := func() (bool, error) {
		ok := false
		err := s.segs.find(contentKey(id), func(l location) bool {
			last = try(l)
			ok = last == nil
			return !ok
		})
		if err == nil && !ok {
			s.segs.findTail(contentKey(id), func(l location) bool {
				last = try(l)
				ok = last == nil
				return !ok
			})
		}
		return ok, err
	}
	ok, err := round()
	if ok || err != nil {
		return err
	}
	changed, err := s.segs.reload()
	if err != nil {
		return err
	}
	if s.segs.scanTails() || changed {
		if ok, err = round(); ok || err != nil {
			return err
		}
	}
	if last == nil {
		last = &content.MissingError{ID: id, Cause: s.segs.problem()}
	}
	return last
}
