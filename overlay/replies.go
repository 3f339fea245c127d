package overlay

// maxReplies bounds the remembered answers of a connection. The kernel resends only what it has no answer for, and
// keeps far fewer requests in flight.
const maxReplies = 4096

// replies remembers the answers to one connection's requests that must not be done twice. Guarded by the fork's lock.
type replies struct {
	conn  [16]byte
	value map[uint64]uint64
	order []uint64 // ring of request ids
	next  int
}

func (r *replies) add(conn [16]byte, unique, value uint64) {
	if r.value == nil || r.conn != conn {
		*r = replies{conn: conn, value: make(map[uint64]uint64)}
	}
	if len(r.order) < maxReplies {
		r.order = append(r.order, unique)
	} else {
		delete(r.value, r.order[r.next])
		r.order[r.next] = unique
		r.next = (r.next + 1) % maxReplies
	}
	r.value[unique] = value
}

func (r *replies) find(conn [16]byte, unique uint64) (uint64, bool) {
	if r.conn != conn {
		return 0, false
	}
	v, ok := r.value[unique]
	return v, ok
}
