package snapshot

import (
	"container/list"
	"sync"

	"tine/snapshot/content"
)

// hotLimit (16 MiB) bounds the verified small contents that are kept in memory. The kernel caches what it was given;
// this serves several forks of one checkpoint, and a file that is read in pieces.
const hotLimit = 16 << 20

// hotSet is a least-recently-used set of contents.
type hotSet struct {
	limit int64 // bytes; 0 keeps nothing

	mu   sync.Mutex
	used int64
	m    map[content.ID]*list.Element
	l    list.List // of hotItem, hottest first
}

type hotItem struct {
	id   content.ID
	data []byte
}

func (h *hotSet) get(id content.ID) ([]byte, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.m[id]
	if e == nil {
		return nil, false
	}
	h.l.MoveToFront(e)
	return e.Value.(hotItem).data, true
}

// put keeps data, which must not change any more.
func (h *hotSet) put(id content.ID, data []byte) {
	n := int64(len(data))
	h.mu.Lock()
	defer h.mu.Unlock()
	if n > h.limit/4 || h.m[id] != nil {
		return
	}
	if h.m == nil {
		h.m = map[content.ID]*list.Element{}
	}
	h.m[id] = h.l.PushFront(hotItem{id, data})
	for h.used += n; h.used > h.limit; {
		e := h.l.Back()
		it := h.l.Remove(e).(hotItem)
		delete(h.m, it.id)
		h.used -= int64(len(it.data))
	}
}
