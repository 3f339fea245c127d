package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
)

func (f *face) GetXAttr(_ <-chan struct{}, h *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	ino := node(h.NodeId)
	v, err := f.fork.Getxattr(ino, name)
	if err != nil {
		return 0, f.status("getxattr", ino, err)
	}
	if len(v) > len(dest) {
		return uint32(len(v)), fuse.ERANGE
	}
	return uint32(copy(dest, v)), fuse.OK
}

func (f *face) ListXAttr(_ <-chan struct{}, h *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	ino := node(h.NodeId)
	names, err := f.fork.Listxattr(f.caller(h, 0), ino)
	if err != nil {
		return 0, f.status("listxattr", ino, err)
	}
	size := 0
	for _, n := range names {
		size += len(n) + 1
	}
	if size > len(dest) {
		return uint32(size), fuse.ERANGE
	}
	for _, n := range names {
		dest = dest[copy(dest, n):]
		dest[0], dest = 0, dest[1:]
	}
	return uint32(size), fuse.OK
}

func (f *face) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, data []byte) fuse.Status {
	ino := node(in.NodeId)
	// The payload can be longer than the value where it was padded.
	if int(in.Size) < len(data) {
		data = data[:in.Size]
	}
	return f.status("setxattr", ino, f.fork.Setxattr(f.caller(&in.InHeader, 0), ino, name, data, in.Flags))
}

func (f *face) RemoveXAttr(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	ino := node(h.NodeId)
	return f.status("removexattr", ino, f.fork.Removexattr(f.caller(h, 0), ino, name))
}
