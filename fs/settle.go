package fs

import (
	"crypto/rand"
	"encoding/hex"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tine/fs/transport"
)

// settle makes the kernel ask for OPENDIR, OPEN, POLL and FLUSH once, while nobody else can reach the mount, and learn
// from ENOSYS never to ask again. root is a descriptor of the mount's root. The file that is opened for that has a
// random name, for the time of the probe.
func (s *session) settle(o *outsider, root int) error {
	var b [16]byte
	rand.Read(b[:])
	name := ".tine-probe-" + hex.EncodeToString(b[:])
	s.probe.Store(&name)
	defer s.probe.Store(nil)
	return o.do(doProbe, root, name)
}

// probeEntry answers the LOOKUP of the probe: an empty file that expires at once.
func (s *session) probeEntry(msg transport.Msg, out []byte) int {
	const size = transport.OutHeaderSize + int(unsafe.Sizeof(fuse.EntryOut{}))
	e := (*fuse.EntryOut)(unsafe.Pointer(&out[:size][transport.OutHeaderSize]))
	*e = fuse.EntryOut{NodeId: probeNode, Attr: fuse.Attr{Ino: probeNode, Mode: unix.S_IFREG | 0444, Nlink: 1}}
	return transport.PutHeader(out, msg.Unique(), size)
}
