package fs

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tine/fs/transport"
)

// settle makes the kernel ask for OPENDIR, OPEN, POLL and FLUSH once, while nobody else can reach the mount, and learn
// from ENOSYS never to ask again. root is a descriptor of the mount's root. The file that is opened for that has a
// random name, for the time of the probe.
func (s *session) settle(root int) error {
	var b [16]byte
	rand.Read(b[:])
	name := ".tine-probe-" + hex.EncodeToString(b[:])
	s.probe.Store(&name)
	defer s.probe.Store(nil)
	dir, err := unix.Openat(root, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("fuse: probe of the root: %w", err)
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(root, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("fuse: probe: %w", err)
	}
	// A Go program that opens one of these files polls it while it holds a processor. In this very process that can
	// be the processor that would answer.
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); err != nil && err != unix.EINTR {
		unix.Close(fd)
		return fmt.Errorf("fuse: probe: poll: %w", err)
	}
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("fuse: probe: %w", err)
	}
	return nil
}

// probeEntry answers the LOOKUP of the probe: an empty file that expires at once.
func (s *session) probeEntry(msg transport.Msg, out []byte) int {
	const size = transport.OutHeaderSize + int(unsafe.Sizeof(fuse.EntryOut{}))
	e := (*fuse.EntryOut)(unsafe.Pointer(&out[:size][transport.OutHeaderSize]))
	*e = fuse.EntryOut{NodeId: probeNode, Attr: fuse.Attr{Ino: probeNode, Mode: unix.S_IFREG | 0444, Nlink: 1}}
	return transport.PutHeader(out, msg.Unique(), size)
}
