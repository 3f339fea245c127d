package overlay

import (
	"container/list"
	"fmt"
	"io"
	"sync"

	"tine/snapshot/content"
)

// Opening a content verifies it, so readers of recently read contents are kept open, in one table for all forks of
// the process.

const maxReaders = 96

type readerKey struct {
	from content.Opener
	id   content.ID
}

type reader struct {
	key  readerKey
	r    content.Reader
	refs int
	elem *list.Element // in idle order, when refs is 0
}

var readers = struct {
	mu   sync.Mutex
	m    map[readerKey]*reader
	idle list.List              // least recently used first
	from map[content.Opener]int // forks that are open over it
}{m: make(map[readerKey]*reader), from: make(map[content.Opener]int)}

// readContent reads exactly len(b) bytes of a content.
func readContent(from content.Opener, id content.ID, b []byte, off int64) error {
	if id.IsZero() {
		return fmt.Errorf("inode has no content")
	}
	r, err := openContent(from, id)
	if err != nil {
		return err
	}
	n, err := r.r.ReadAt(b, off)
	if n == len(b) {
		err = nil
	} else if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	closeContent(r, err != nil)
	return err
}

func openContent(from content.Opener, id content.ID) (*reader, error) {
	key := readerKey{from, id}
	readers.mu.Lock()
	if r := readers.m[key]; r != nil {
		if r.elem != nil {
			readers.idle.Remove(r.elem)
			r.elem = nil
		}
		r.refs++
		readers.mu.Unlock()
		return r, nil
	}
	readers.mu.Unlock()
	c, err := withDescriptors(func() (content.Reader, error) { return from.Open(id) })
	if err != nil {
		return nil, err
	}
	return &reader{key: key, r: c, refs: 1}, nil
}

// closeContent keeps a reader for the next one, unless it failed.
func closeContent(r *reader, failed bool) {
	readers.mu.Lock()
	defer readers.mu.Unlock()
	if r.refs--; r.refs > 0 {
		return
	}
	old := readers.m[r.key]
	if failed || old != nil && old != r {
		// Another reader of the same content was quicker, or this one is no good.
		if old == r {
			delete(readers.m, r.key)
		}
		r.r.Close()
		return
	}
	readers.m[r.key] = r
	r.elem = readers.idle.PushBack(r)
	closeIdleLocked(maxReaders)
}

// closeIdleReaders closes contents that nobody reads until keep are left.
func closeIdleReaders(keep int) {
	readers.mu.Lock()
	defer readers.mu.Unlock()
	closeIdleLocked(keep)
}

func closeIdleLocked(keep int) {
	for readers.idle.Len() > keep {
		v := readers.idle.Remove(readers.idle.Front()).(*reader)
		delete(readers.m, v.key)
		v.r.Close()
	}
}

// useContents and doneContents bracket a fork's life: with the last fork over a store, what is kept open of it is
// closed.
func useContents(from content.Opener) {
	readers.mu.Lock()
	readers.from[from]++
	readers.mu.Unlock()
}

func doneContents(from content.Opener) {
	readers.mu.Lock()
	readers.from[from]--
	last := readers.from[from] == 0
	if last {
		delete(readers.from, from)
	}
	readers.mu.Unlock()
	if last {
		ForgetContents(from)
	}
}

// ForgetContents closes what is kept open of a store's contents and isn't being read. Closing the last fork over a
// store does it; views that outlive their forks may open contents again.
func ForgetContents(from content.Opener) {
	readers.mu.Lock()
	defer readers.mu.Unlock()
	for e := readers.idle.Front(); e != nil; {
		next := e.Next()
		if r := e.Value.(*reader); r.key.from == from {
			readers.idle.Remove(e)
			delete(readers.m, r.key)
			r.r.Close()
		}
		e = next
	}
}
