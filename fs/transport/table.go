package transport

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// table maps slots to connections. get takes no lock, since each request passes through it; put and drop are called
// under Loop.mu. A slot is (generation << 32 | index), so that an event for a connection that is gone finds nothing.
type table struct {
	chunks [1024]atomic.Pointer[chunk]
	free   []uint32
	next   uint32 // first index that was never used; index 0 is not
	gens   uint32
}

type chunk [1024]atomic.Pointer[Conn]

// put gives c its slot, and is false when the table is full.
func (t *table) put(c *Conn) bool {
	var i uint32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		if t.next+1 == uint32(len(t.chunks)*len(chunk{})) {
			return false
		}
		t.next++
		i = t.next
	}
	ch := t.chunks[i>>10].Load()
	if ch == nil {
		ch = new(chunk)
		t.chunks[i>>10].Store(ch)
	}
	t.gens++
	c.slot = uint64(t.gens)<<32 | uint64(i)
	ch[i&1023].Store(c)
	return true
}

func (t *table) get(slot uint64) *Conn {
	i := uint32(slot)
	ch := t.chunks[i>>10].Load()
	if ch == nil {
		return nil
	}
	c := ch[i&1023].Load()
	if c == nil || c.slot != slot {
		return nil
	}
	return c
}

func (t *table) drop(slot uint64) {
	i := uint32(slot)
	t.chunks[i>>10].Load()[i&1023].Store(nil)
	t.free = append(t.free, i)
}

func (t *table) all() []*Conn {
	var r []*Conn
	for i := range t.chunks {
		ch := t.chunks[i].Load()
		if ch == nil {
			continue
		}
		for j := range ch {
			if c := ch[j].Load(); c != nil {
				r = append(r, c)
			}
		}
	}
	return r
}

func (c *Conn) event() *unix.EpollEvent {
	return &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(uint32(c.slot)), Pad: int32(c.slot >> 32)}
}

func eventSlot(ev *unix.EpollEvent) uint64 { return uint64(uint32(ev.Pad))<<32 | uint64(uint32(ev.Fd)) }
