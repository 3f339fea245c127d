package transport

import "sync"

// small is the largest request in bytes that is copied when it changes hands; larger ones take their buffer along.
const small = 16 << 10

// buffers are one thread's.
type buffers struct {
	in  []byte
	out []byte
}

// reply returns room for an answer of n bytes; it grows to the largest that was asked for.
func (b *buffers) reply(n int) []byte {
	if cap(b.out) < n {
		b.out = make([]byte, max(n, 64<<10))
	}
	return b.out[:n]
}

// task is a request that left its thread.
type task struct {
	msg   Msg
	whole []byte // the read buffer that msg lies in; nil for a copy
}

var inPool sync.Pool // of *[]byte, read buffers of one Loop's size

// detach takes the request of n bytes out of b, which gets another buffer of size bytes if the request is large.
func (b *buffers) detach(n, size int) task {
	if n <= small {
		return task{msg: append(Msg(nil), b.in[:n]...)}
	}
	t := task{msg: b.in[:n], whole: b.in}
	if p, ok := inPool.Get().(*[]byte); ok && len(*p) == size {
		b.in = *p
	} else {
		b.in = make([]byte, size)
	}
	return t
}

func (t *task) give() {
	if t.whole != nil {
		inPool.Put(&t.whole)
	}
}

// replyClasses are the sizes in bytes of pooled reply buffers: attributes, a directory page or one readahead
// window, the largest READ.
var replyClasses = [...]int{4 << 10, 136 << 10, 1<<20 + 8<<10}

var replyPools [len(replyClasses)]sync.Pool

type replyBuf struct {
	b     []byte
	whole *[]byte
	class int
}

func takeReply(n int) replyBuf {
	for i, size := range replyClasses {
		if n > size {
			continue
		}
		p, ok := replyPools[i].Get().(*[]byte)
		if !ok {
			s := make([]byte, size)
			p = &s
		}
		return replyBuf{(*p)[:n], p, i}
	}
	return replyBuf{b: make([]byte, n)}
}

func (r replyBuf) give() {
	if r.whole != nil {
		replyPools[r.class].Put(r.whole)
	}
}
