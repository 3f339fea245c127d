package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
)

func (f *face) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, err := f.fork.Read(in.NodeId, buf, int64(in.Offset))
	if err != nil {
		return nil, f.status("read", in.NodeId, err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

func (f *face) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	// The kernel knows who wrote, also where pages are written back late and in anybody's name.
	kill := in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0
	n, err := f.fork.Write(f.caller(&in.InHeader, 0), in.NodeId, data, int64(in.Offset), kill)
	return uint32(n), f.status("write", in.NodeId, err)
}

// Writev has one element always: requests are read into one buffer.
func (f *face) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	return f.Write(cancel, in, data[0])
}

func (f *face) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	const dataOnly = 1 // FUSE_FSYNC_FDATASYNC
	return f.status("fsync", in.NodeId, f.fork.Fsync(node(in.NodeId), in.FsyncFlags&dataOnly != 0))
}

func (f *face) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return f.Fsync(cancel, in)
}

func (f *face) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	err := f.fork.Fallocate(f.caller(&in.InHeader, 0), in.NodeId, in.Mode, int64(in.Offset), int64(in.Length))
	return f.status("fallocate", in.NodeId, err)
}

func (f *face) CopyFileRange(_ <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	// The answer has 32 bits. The kernel never asks for more by this opcode.
	n := min(in.Len, 1<<32-blockSize)
	done, err := f.fork.CopyRange(f.caller(&in.InHeader, 0), in.NodeId, int64(in.OffIn), in.NodeIdOut,
		int64(in.OffOut), int64(n))
	if err != nil {
		return 0, f.status("copy_file_range", in.NodeIdOut, err)
	}
	return uint32(done), fuse.OK
}

func (f *face) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	off, err := f.fork.Seek(in.NodeId, int64(in.Offset), int(in.Whence))
	if err != nil {
		return f.status("lseek", in.NodeId, err)
	}
	out.Offset = uint64(off)
	return fuse.OK
}

// Open, OpenDir and Flush are settled by the first probe; see the package comment.
func (f *face) Open(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status    { return fuse.ENOSYS }
func (f *face) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.ENOSYS }
func (f *face) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status                 { return fuse.ENOSYS }

// Access is never asked with default_permissions.
func (f *face) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.ENOSYS }
