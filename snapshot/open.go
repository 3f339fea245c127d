package snapshot

import (
	"errors"
	"fmt"

	"tine/snapshot/content"
)

// Open opens a content by its id and implements content.Opener. It looks in the store, then in the sources; small contents
// that a source has are kept in the store from then on. Everything is verified against the id before a byte of it is
// given out; what can't be is an error that names the id (*content.MissingError, *content.CorruptError).
func (s *Store) Open(id content.ID) (content.Reader, error) { return s.open(id, 0) }

// maxSame bounds how many names of one content may lead to each other: git id → Tree256.
const maxSame = 4

func (s *Store) open(id content.ID, depth int) (content.Reader, error) {
	switch {
	case id.Algo.IsLoose():
		blob, err := s.open(id.Blob(), depth)
		if err != nil {
			return nil, err
		}
		return content.NewLoose(blob), nil
	case id.Algo.Size() == 0:
		return nil, &content.MissingError{ID: id, Cause: errors.New("unknown algorithm")}
	case isEmpty(id):
		return content.FromBytes(nil), nil
	case depth > maxSame:
		return nil, &content.CorruptError{ID: id, Why: "its names lead in a circle"}
	}
	if data, ok := s.hot.get(id); ok {
		return content.FromBytes(data), nil
	}
	r, err := s.openStored(id, depth)
	if r != nil {
		return r, nil
	}
	if id.Algo.IsBlob() {
		h, herr := s.hydrate(id, depth)
		if h != nil {
			return h, nil
		}
		if err == nil {
			err = herr
		}
	}
	changed, rerr := s.segs.reload()
	if rerr == nil && (s.segs.scanTails() || changed) {
		if r, serr := s.openStored(id, depth); r != nil {
			return r, nil
		} else if serr != nil {
			err = serr
		}
	}
	var corrupt *content.CorruptError
	if errors.As(err, &corrupt) {
		return nil, err
	}
	var missing *content.MissingError
	if errors.As(err, &missing) && missing.ID == id {
		return nil, err
	}
	if err == nil {
		err = s.segs.problem()
	}
	return nil, &content.MissingError{ID: id, Cause: err}
}

// openStored tries the store's own records of id. Without any both results are nil.
func (s *Store) openStored(id content.ID, depth int) (r content.Reader, err error) {
	try := func(l location) bool {
		var lerr error
		if r, lerr = s.openAt(id, l, depth); lerr != nil {
			r, err = nil, lerr
		}
		return r == nil
	}
	if ferr := s.segs.find(contentKey(id), try); ferr != nil {
		return nil, ferr
	}
	if r == nil {
		s.segs.findTail(contentKey(id), try)
	}
	if r != nil {
		return r, nil
	}
	return nil, err
}

func (s *Store) openAt(id content.ID, l location, depth int) (content.Reader, error) {
	switch l.kind {
	case kindObject:
		r, err := s.openObject(id, l.size)
		if err != nil {
			return nil, err
		}
		return r, nil
	case kindChunks:
		r, err := s.openChunks(id, l)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	data, err := s.segs.read(contentKey(id), l)
	if err != nil {
		return nil, &content.CorruptError{ID: id, Why: err.Error()}
	}
	switch l.kind {
	case kindSame:
		other, err := decodeID(data)
		if err != nil {
			return nil, &content.CorruptError{ID: id, Why: err.Error()}
		}
		r, err := s.open(other, depth+1)
		if err == nil && r.Size() != l.size {
			r.Close()
			return nil, &content.CorruptError{ID: id, Why: fmt.Sprintf("its other name %s has %d bytes instead of %d", other, r.Size(), l.size)}
		}
		return r, err
	case kindBytes:
		if err := content.Verify(id, data); err != nil {
			return nil, err
		}
		s.hot.put(id, data)
		return content.FromBytes(data), nil
	}
	return nil, &content.CorruptError{ID: id, Why: fmt.Sprintf("a record of kind %d", l.kind)}
}

// hydrate fetches a blob from a source, keeps it, and opens it. A store that can't be written (read-only, full) serves it
// from memory.
func (s *Store) hydrate(id content.ID, depth int) (content.Reader, error) {
	v, err, _ := s.flight.Do(id.String(), func() (any, error) {
		var out any
		done, err := s.fromSources(id, func(r content.Reader) error {
			if r.Size() > content.MaxSmall {
				return s.hydrateLarge(id, r)
			}
			data, err := content.ReadAll(r, content.MaxSmall)
			if err != nil {
				return &content.CorruptError{ID: id, Why: err.Error()}
			}
			if err := content.Verify(id, data); err != nil {
				return err
			}
			out = data
			return nil
		})
		if err == nil && !done {
			err = &content.MissingError{ID: id}
		}
		if data, ok := out.([]byte); ok && err == nil {
			s.hot.put(id, data)
			// Buffered, and verified again when it is read.
			if kerr := s.keep(id, data, false); kerr == nil && len(data) > inlineLimit {
				s.sums.put(id, blockSums(data))
				out = nil // a reader of the file holds no memory
			}
		}
		return out, err
	})
	if err != nil {
		return nil, err
	}
	if data, ok := v.([]byte); ok {
		return content.FromBytes(data), nil
	}
	r, err := s.openStored(id, depth)
	if r == nil && err == nil {
		err = &content.MissingError{ID: id}
	}
	return r, err
}

// hydrateLarge stores a blob of more than content.MaxSmall under its Tree256 id, and that it is the blob id.
func (s *Store) hydrateLarge(id content.ID, r content.Reader) error {
	got, err := content.BlobIDOf(r, r.Size(), id.Algo.Format())
	if err != nil {
		return &content.CorruptError{ID: id, Why: err.Error()}
	}
	if got != id {
		return &content.CorruptError{ID: id, Got: got, Why: fmt.Sprintf("the source has %s", got)}
	}
	large, err := s.putLarge(r, r.Size(), nil, 0)
	if err != nil {
		return err
	}
	if err := s.setGitID(large, id, r.Size()); err != nil {
		return err
	}
	return s.setSame(id, large, r.Size())
}
