package transport

import (
	"encoding/binary"
	"strconv"
)

// Opcodes of linux/fuse.h, protocol 7.45.
const (
	Lookup        = 1
	Forget        = 2
	Getattr       = 3
	Setattr       = 4
	Readlink      = 5
	Symlink       = 6
	Mknod         = 8
	Mkdir         = 9
	Unlink        = 10
	Rmdir         = 11
	Rename        = 12
	Link          = 13
	Open          = 14
	Read          = 15
	Write         = 16
	Statfs        = 17
	Release       = 18
	Fsync         = 20
	Setxattr      = 21
	Getxattr      = 22
	Listxattr     = 23
	Removexattr   = 24
	Flush         = 25
	Init          = 26
	Opendir       = 27
	Readdir       = 28
	Releasedir    = 29
	Fsyncdir      = 30
	Access        = 34
	Create        = 35
	Interrupt     = 36
	Destroy       = 38
	Ioctl         = 39
	NotifyReply   = 41
	BatchForget   = 42
	Fallocate     = 43
	Readdirplus   = 44
	Rename2       = 45
	Lseek         = 46
	CopyFileRange = 47
	Syncfs        = 50
	Tmpfile       = 51
	Statx         = 52

	numOpcodes = 64
)

// Notification codes; the kernel takes them in the error field of a message with unique id 0.
const (
	InvalInode = 2
	InvalEntry = 3
	Store      = 4
	Delete     = 6
	Resend     = 7
	IncEpoch   = 8
)

const (
	// InHeaderSize is the size in bytes of the header of every request.
	InHeaderSize = 40
	// OutHeaderSize is the size in bytes of the header of every reply.
	OutHeaderSize = 16
	// ResendBit is set in the unique id of a request that was read before, by this server or a dead one, and that
	// the kernel hands out again after a Resend notification.
	ResendBit = 1 << 63

	// maxFixedReply bounds a reply's fixed part: header and the largest struct (STATX, 288 bytes).
	maxFixedReply = OutHeaderSize + 288
	// maxTarget bounds READLINK's reply, which has no size in its request: PATH_MAX.
	maxTarget = 4096
)

// Msg is one request as it was read: header, struct, payload, in the machine's byte order.
type Msg []byte

// Opcode of a request.
func (m Msg) Opcode() uint32 { return binary.NativeEndian.Uint32(m[4:]) }

// Unique id of a request within its connection, the resend bit included.
func (m Msg) Unique() uint64 { return binary.NativeEndian.Uint64(m[8:]) }

// Node id of the inode (directory) that the request is about.
func (m Msg) Node() uint64 { return binary.NativeEndian.Uint64(m[16:]) }

// SetNode replaces the node id.
func (m Msg) SetNode(n uint64) { binary.NativeEndian.PutUint64(m[16:], n) }

// Resent reports whether the kernel has handed this request out before.
func (m Msg) Resent() bool { return m.Unique()&ResendBit != 0 }

// replySize is the room in bytes that an answer can need.
func (m Msg) replySize() int {
	switch m.Opcode() {
	case Read, Readdir, Readdirplus:
		if len(m) >= 60 {
			return maxFixedReply + int(binary.NativeEndian.Uint32(m[56:]))
		}
	case Getxattr, Listxattr:
		if len(m) >= 44 {
			return maxFixedReply + int(binary.NativeEndian.Uint32(m[40:]))
		}
	case Ioctl:
		if len(m) >= 72 {
			return maxFixedReply + int(binary.NativeEndian.Uint32(m[68:]))
		}
	case Readlink:
		return maxFixedReply + maxTarget
	}
	return maxFixedReply
}

// noReply reports whether the kernel waits for no answer to an opcode.
func noReply(op uint32) bool {
	return op == Forget || op == BatchForget || op == NotifyReply || op == Interrupt
}

// PutError writes the reply that says errno (a positive number, 0 for success without data) and returns its size.
func PutError(out []byte, unique uint64, errno int32) int {
	binary.NativeEndian.PutUint32(out, OutHeaderSize)
	binary.NativeEndian.PutUint32(out[4:], uint32(-errno))
	binary.NativeEndian.PutUint64(out[8:], unique)
	return OutHeaderSize
}

// PutHeader writes the header of a successful reply of n bytes in all, n included, and returns n.
func PutHeader(out []byte, unique uint64, n int) int {
	binary.NativeEndian.PutUint32(out, uint32(n))
	binary.NativeEndian.PutUint32(out[4:], 0)
	binary.NativeEndian.PutUint64(out[8:], unique)
	return n
}

// PutNotify writes the header of a notification of n bytes in all.
func PutNotify(out []byte, code int32, n int) {
	binary.NativeEndian.PutUint32(out, uint32(n))
	binary.NativeEndian.PutUint32(out[4:], uint32(code))
	binary.NativeEndian.PutUint64(out[8:], 0)
}

var opNames = [numOpcodes]string{
	Lookup: "LOOKUP", Forget: "FORGET", Getattr: "GETATTR", Setattr: "SETATTR", Readlink: "READLINK", Symlink: "SYMLINK",
	Mknod: "MKNOD", Mkdir: "MKDIR", Unlink: "UNLINK", Rmdir: "RMDIR", Rename: "RENAME", Link: "LINK", Open: "OPEN",
	Read: "READ", Write: "WRITE", Statfs: "STATFS", Release: "RELEASE", Fsync: "FSYNC", Setxattr: "SETXATTR",
	Getxattr: "GETXATTR", Listxattr: "LISTXATTR", Removexattr: "REMOVEXATTR", Flush: "FLUSH", Init: "INIT",
	Opendir: "OPENDIR", Readdir: "READDIR", Releasedir: "RELEASEDIR", Fsyncdir: "FSYNCDIR", Access: "ACCESS",
	Create: "CREATE", Interrupt: "INTERRUPT", Destroy: "DESTROY", Ioctl: "IOCTL", NotifyReply: "NOTIFY_REPLY",
	BatchForget: "BATCH_FORGET", Fallocate: "FALLOCATE", Readdirplus: "READDIRPLUS", Rename2: "RENAME2",
	Lseek: "LSEEK", CopyFileRange: "COPY_FILE_RANGE", Syncfs: "SYNCFS", Tmpfile: "TMPFILE", Statx: "STATX",
	31: "GETLK", 32: "SETLK", 33: "SETLKW", 37: "BMAP", 40: "POLL", 48: "SETUPMAPPING", 49: "REMOVEMAPPING",
	53: "COPY_FILE_RANGE_64",
}

// OpName is the kernel's name of an opcode.
func OpName(op uint32) string {
	if op < numOpcodes && opNames[op] != "" {
		return opNames[op]
	}
	return "OPCODE_" + strconv.Itoa(int(op))
}
