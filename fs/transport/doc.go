// Package transport moves FUSE messages between /dev/fuse descriptors and handlers. It knows the wire's frame
// (headers, opcodes, the size of a reply) and nothing of files.
//
// One Loop serves every connection of a process: an edge-triggered epoll set and a few locked threads with buffers
// of their own, so that an idle mount costs a descriptor and a small struct, no thread, no goroutine and no buffer.
//
// # Who answers a request
//
// A thread reads a request and answers it itself, which is the short way (epoll_wait, read, write). There is always
// one thread that is in no handler: a thread that would be the last to enter one hands its request to a goroutine
// instead, and so it does with requests of class Slow. Handlers of Waiting and Slow requests may therefore block for
// as long as they like, on disk, on a network or on another request of the same mount; requests go on being read.
//
// # Hazards
//
//   - Several threads read one descriptor. It is O_NONBLOCK, and EAGAIN only means that another thread was faster.
//   - Edge-triggered: a request that comes after the EAGAIN makes a new event, one that comes before it is read by
//     whoever got the event. So a thread reads until EAGAIN, or re-arms the descriptor: when it stops for fairness,
//     and before it enters a handler that can wait, because the requests behind have had their event.
//   - The read buffer must hold max_write and its headers, else read(2) is EINVAL for every request.
//   - INTERRUPT is swallowed. Any answer to it for a request that was answered meanwhile is EAGAIN, which the kernel
//     takes as "ask again", at once and for ever.
//   - read(2): ENOENT means that the request was cancelled while it was read, ENODEV that the mount is gone.
//   - write(2) of a reply: ENOENT means that nobody waits any more.
//   - A reply that the kernel refuses (EINVAL) leaves its caller hanging: it is replaced by EIO.
//   - A descriptor number is reused after close, so that it is closed only when no thread uses it (Conn.refs).
//   - Notifications can block until a handler has replied (INVAL_ENTRY waits for a LOOKUP in that directory):
//     Conn.Notify is called from threads that hold no lock that a handler takes, and never from a handler.
//
// Lock order: none; there are only atomics and the epoll set. Loop.mu guards the table of connections.
package transport
