package objects

import (
	"container/list"
	"errors"
	"sync"
)

var errDelta = errors.New("its delta is malformed")

// deltaSizes reads a delta's two leading numbers: size of the base, size of the result.
func deltaSizes(d []byte) (base, result int64, n int, err error) {
	num := func() (v int64) {
		for shift := 0; ; shift += 7 {
			if n == len(d) || shift > 56 {
				err = errDelta
				return 0
			}
			c := d[n]
			n++
			v |= int64(c&0x7f) << shift
			if c&0x80 == 0 {
				return v
			}
		}
	}
	base = num()
	if err == nil {
		result = num()
	}
	return base, result, n, err
}

// applyDelta makes an object from its base and its delta's instructions.
func applyDelta(base, d []byte) ([]byte, error) {
	baseSize, size, n, err := deltaSizes(d)
	if err != nil {
		return nil, err
	}
	if baseSize != int64(len(base)) || size > maxInMemory {
		return nil, errDelta
	}
	// A copy instruction makes at most 16 MiB of 7 bytes, so a wild size is only believed as far as that.
	if size > int64(len(d))<<24 {
		return nil, errDelta
	}
	out := make([]byte, 0, size)
	for d = d[n:]; len(d) > 0; {
		c := d[0]
		d = d[1:]
		switch {
		case c&0x80 != 0:
			var off, length int
			for i := 0; i < 7; i++ {
				if c>>i&1 == 0 {
					continue
				}
				if len(d) == 0 {
					return nil, errDelta
				}
				if i < 4 {
					off |= int(d[0]) << (8 * i)
				} else {
					length |= int(d[0]) << (8 * (i - 4))
				}
				d = d[1:]
			}
			if length == 0 {
				length = 0x10000
			}
			if off+length > len(base) || len(out)+length > cap(out) {
				return nil, errDelta
			}
			out = append(out, base[off:off+length]...)
		case c != 0:
			if int(c) > len(d) || len(out)+int(c) > cap(out) {
				return nil, errDelta
			}
			out = append(out, d[:c]...)
			d = d[c:]
		default:
			return nil, errDelta
		}
	}
	if int64(len(out)) != size {
		return nil, errDelta
	}
	return out, nil
}

const (
	// deltaCacheBytes (24 MiB) holds the bases of some thousand trees, what one walk of a large commit reuses.
	deltaCacheBytes = 24 << 20
	// deltaCacheItem: larger objects would push out too many others.
	deltaCacheItem = 2 << 20
)

// deltaCache remembers objects that are bases of others, least recently used out first.
type deltaCache struct {
	max int64

	mu    sync.Mutex
	used  int64
	order list.List // of *cached, most recent first
	items map[cacheKey]*list.Element
}

type cacheKey struct {
	p   *pack
	off int64
}

type cached struct {
	key  cacheKey
	typ  Type
	data []byte
}

func newDeltaCache(max int64) *deltaCache {
	return &deltaCache{max: max, items: map[cacheKey]*list.Element{}}
}

func (c *deltaCache) get(p *pack, off int64) (Type, []byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[cacheKey{p, off}]
	if !ok {
		return 0, nil, false
	}
	c.order.MoveToFront(e)
	v := e.Value.(*cached)
	return v.typ, v.data, true
}

func (c *deltaCache) put(p *pack, off int64, typ Type, data []byte) {
	if len(data) > deltaCacheItem {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := cacheKey{p, off}
	if _, ok := c.items[key]; ok {
		return
	}
	c.items[key] = c.order.PushFront(&cached{key, typ, data})
	c.used += int64(len(data))
	for c.used > c.max {
		last := c.order.Back()
		v := last.Value.(*cached)
		c.order.Remove(last)
		delete(c.items, v.key)
		c.used -= int64(len(v.data))
	}
}
