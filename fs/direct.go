package fs

import (
	"bytes"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"

	"tine/fs/transport"
	"tine/snapshot/image"
)

// direct answers the requests that come most often in place, from the read buffer into the reply's. go-fuse's way
// to the same handlers copies each request into a kilobyte of heap first. Its second result is false for all others,
// and for what is not as long as it must be.
func (s *session) direct(msg transport.Msg, out []byte) (int, bool) {
	switch msg.Opcode() {
	case transport.Lookup:
		h := (*fuse.InHeader)(unsafe.Pointer(&msg[0]))
		if h.TotalExtlen != 0 {
			return 0, false
		}
		name := payloadName(msg[transport.InHeaderSize:])
		if p := s.probe.Load(); p != nil && h.NodeId == image.Root && name == *p {
			return s.probeEntry(msg, out), true
		}
		o := reply[fuse.EntryOut](out)
		return finish(out, h.Unique, s.Lookup(nil, h, name, o), unsafe.Sizeof(*o)), true
	case transport.Getattr:
		in, ok := request[fuse.GetAttrIn](msg)
		if !ok {
			return 0, false
		}
		o := reply[fuse.AttrOut](out)
		return finish(out, in.Unique, s.GetAttr(nil, in, o), unsafe.Sizeof(*o)), true
	case transport.Read:
		in, ok := request[fuse.ReadIn](msg)
		if !ok || len(out) < transport.OutHeaderSize+int(in.Size) {
			return 0, false
		}
		n, err := s.fork.Read(in.NodeId, out[transport.OutHeaderSize:][:in.Size], int64(in.Offset))
		return finish(out, in.Unique, s.status("read", in.NodeId, err), uintptr(n)), true
	case transport.Write:
		in, ok := request[fuse.WriteIn](msg)
		const head = int(unsafe.Sizeof(*in))
		if !ok || len(msg) != head+int(in.Size) {
			return 0, false
		}
		o := reply[fuse.WriteOut](out)
		n, status := s.Write(nil, in, msg[head:])
		o.Size = n
		return finish(out, in.Unique, status, unsafe.Sizeof(*o)), true
	case transport.Getxattr:
		in, ok := request[fuse.GetXAttrIn](msg)
		if !ok || len(out) < transport.OutHeaderSize+int(in.Size) {
			return 0, false
		}
		name := payloadName(msg[unsafe.Sizeof(*in):])
		if in.Size > 0 {
			n, status := s.GetXAttr(nil, &in.InHeader, name, out[transport.OutHeaderSize:][:in.Size])
			return finish(out, in.Unique, status, uintptr(n)), true
		}
		o := reply[fuse.GetXAttrOut](out)
		n, status := s.GetXAttr(nil, &in.InHeader, name, nil)
		if status == fuse.ERANGE { // only the size was asked for
			status = fuse.OK
		}
		o.Size = n
		return finish(out, in.Unique, status, unsafe.Sizeof(*o)), true
	case transport.Forget:
		s.Forget(msg.Node(), 0)
		return 0, true
	case transport.BatchForget:
		const head, one = transport.InHeaderSize + 8, 16
		for b := msg[min(head, len(msg)):]; len(b) >= one; b = b[one:] {
			s.Forget(*(*uint64)(unsafe.Pointer(&b[0])), 0)
		}
		return 0, true
	}
	return 0, false
}

// request is msg as the struct that it begins with.
func request[T any](msg transport.Msg) (*T, bool) {
	var t *T
	if uintptr(len(msg)) < unsafe.Sizeof(*t) {
		return nil, false
	}
	return (*T)(unsafe.Pointer(&msg[0])), true
}

// reply is the zeroed struct of a reply's payload.
func reply[T any](out []byte) *T {
	var zero T
	o := (*T)(unsafe.Pointer(&out[transport.OutHeaderSize:][:unsafe.Sizeof(zero)][0]))
	*o = zero
	return o
}

// finish writes the header of a reply whose payload, n bytes, is in place.
func finish(out []byte, unique uint64, status fuse.Status, n uintptr) int {
	if status != fuse.OK {
		return transport.PutError(out, unique, int32(status))
	}
	return transport.PutHeader(out, unique, transport.OutHeaderSize+int(n))
}

// payloadName is the name that b begins with. It lies in the read buffer: whoever keeps it copies it.
func payloadName(b []byte) string {
	n := bytes.IndexByte(b, 0)
	if n <= 0 {
		return ""
	}
	return unsafe.String(&b[0], n)
}
