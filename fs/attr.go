package fs

import (
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"tine/fs/transport"
	"tine/overlay"
	"tine/snapshot/image"
)

const (
	// forever is the validity in seconds of whatever the kernel caches: ten years. It never expires by itself.
	forever = 315_360_000
	// blockSize in bytes is the preferred size of I/O (st_blksize).
	blockSize = 4096
)

func fillAttr(a *overlay.Attr, out *fuse.Attr) {
	*out = fuse.Attr{
		Ino: a.Ino, Size: uint64(a.Size), Blocks: uint64(a.Blocks),
		Atime: uint64(a.Atime.Sec), Mtime: uint64(a.Mtime.Sec), Ctime: uint64(a.Ctime.Sec),
		Atimensec: a.Atime.Nsec, Mtimensec: a.Mtime.Nsec, Ctimensec: a.Ctime.Nsec,
		Mode: a.Mode, Nlink: a.Nlink, Owner: fuse.Owner{Uid: a.UID, Gid: a.GID}, Rdev: a.Rdev, Blksize: blockSize,
	}
}

func fillEntry(a *overlay.Attr, out *fuse.EntryOut) {
	out.NodeId = a.Ino
	out.Generation = 0 // inode numbers are never used again
	out.EntryValid, out.EntryValidNsec = forever, 0
	out.AttrValid, out.AttrValidNsec = forever, 0
	fillAttr(a, &out.Attr)
}

func (f *face) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if in.NodeId == probeNode {
		out.Attr = fuse.Attr{Ino: probeNode, Mode: unix.S_IFREG | 0444, Nlink: 1}
		return fuse.OK
	}
	ino := node(in.NodeId)
	a, err := f.fork.Getattr(ino)
	if err != nil {
		return f.status("getattr", ino, err)
	}
	out.AttrValid, out.AttrValidNsec = forever, 0
	fillAttr(&a, &out.Attr)
	return fuse.OK
}

// setBits pairs the kernel's bits of SETATTR with the engine's.
var setBits = [...]struct{ fuse, overlay uint32 }{
	{fuse.FATTR_MODE, overlay.SetMode}, {fuse.FATTR_UID, overlay.SetUID}, {fuse.FATTR_GID, overlay.SetGID},
	{fuse.FATTR_SIZE, overlay.SetSize}, {fuse.FATTR_ATIME, overlay.SetAtime}, {fuse.FATTR_MTIME, overlay.SetMtime},
	{fuse.FATTR_ATIME_NOW, overlay.SetAtimeNow}, {fuse.FATTR_MTIME_NOW, overlay.SetMtimeNow},
	{fuse.FATTR_CTIME, overlay.SetCtime},
}

func (f *face) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	ino := node(in.NodeId)
	s := overlay.SetAttr{
		Mode: in.Mode & 07777, UID: in.Uid, GID: in.Gid, Size: int64(in.Size),
		Atime: timeOf(in.Atime, in.Atimensec), Mtime: timeOf(in.Mtime, in.Mtimensec), Ctime: timeOf(in.Ctime, in.Ctimensec),
		KillSuidgid: in.Valid&fuse.FATTR_KILL_SUIDGID != 0,
	}
	for _, b := range setBits {
		if in.Valid&b.fuse != 0 {
			s.Valid |= b.overlay
		}
	}
	// The kernel sets both bits for "now".
	if s.Valid&overlay.SetAtimeNow != 0 {
		s.Valid &^= overlay.SetAtime
	}
	if s.Valid&overlay.SetMtimeNow != 0 {
		s.Valid &^= overlay.SetMtime
	}
	if s.Valid&overlay.SetSize != 0 && s.Size < 0 {
		return fuse.Status(unix.EFBIG)
	}
	// No bit at all is what the kernel sends for chown(-1, -1), and before an ordinary user's WRITE to a file with suid
	// or sgid. It can't be told apart, so that whoever may ask clears these bits.
	a, err := f.fork.Setattr(f.caller(&in.InHeader, 0), ino, s)
	if err != nil {
		return f.status("setattr", ino, err)
	}
	out.AttrValid, out.AttrValidNsec = forever, 0
	fillAttr(&a, &out.Attr)
	return fuse.OK
}

func timeOf(sec uint64, nsec uint32) image.Time { return image.Time{Sec: int64(sec), Nsec: nsec} }

// statx answers STATX, for which go-fuse has no handler.
func (f *face) statx(msg transport.Msg, out []byte) int {
	ino := node(msg.Node())
	a, err := f.fork.Getattr(ino)
	if err != nil {
		return transport.PutError(out, msg.Unique(), int32(f.status("statx", ino, err)))
	}
	const size = transport.OutHeaderSize + int(unsafe.Sizeof(fuse.StatxOut{}))
	o := (*fuse.StatxOut)(unsafe.Pointer(&out[:size][transport.OutHeaderSize]))
	*o = fuse.StatxOut{AttrValid: forever}
	s := &o.Statx
	s.Mask = unix.STATX_BASIC_STATS | unix.STATX_BTIME
	s.Blksize, s.Nlink, s.Uid, s.Gid, s.Mode = blockSize, a.Nlink, a.UID, a.GID, uint16(a.Mode)
	s.Ino, s.Size, s.Blocks = a.Ino, uint64(a.Size), uint64(a.Blocks)
	s.Atime, s.Btime, s.Ctime, s.Mtime = sxTime(a.Atime), sxTime(a.Btime), sxTime(a.Ctime), sxTime(a.Mtime)
	// new_encode_dev: minor bits 0-7 and 20-31, major bits 8-19.
	s.RdevMajor, s.RdevMinor = a.Rdev>>8&0xfff, a.Rdev&0xff|a.Rdev>>12&0xfff00
	return transport.PutHeader(out, msg.Unique(), size)
}

func sxTime(t image.Time) fuse.SxTime { return fuse.SxTime{Sec: uint64(t.Sec), Nsec: t.Nsec} }
