package journal

import (
	"encoding/binary"
	"hash/crc32"

	"tine/snapshot/image"
)

const (
	// frame is the bytes before a payload: length u32, CRC32C u32.
	frame = 8
	// minPayload is seq, flags, generation, seconds and nanoseconds at their shortest.
	minPayload = 8 + 1 + 1 + 1 + 1
	// MaxPayload (1 MiB) bounds what a reader has to hold: the largest operation is an inline write of 16 KiB or an
	// extended attribute of 64 KiB. Longer ones are transactions.
	MaxPayload = 1 << 20
)

const (
	recBegin  = 1
	recCommit = 2
	recReply  = 4
)

// Append encodes r behind dst, as a record of the layer with this salt, and sets At in its effects.
func Append(dst []byte, salt uint32, r *Record) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, r.Seq)
	var flags byte
	if r.Begin {
		flags |= recBegin
	}
	if r.Commit {
		flags |= recCommit
	}
	if r.HasReply {
		flags |= recReply
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, r.Gen)
	dst = appendTime(dst, r.Time)
	if r.HasReply {
		dst = binary.LittleEndian.AppendUint64(dst, r.Unique)
		dst = binary.AppendUvarint(dst, r.Value)
	}
	for i := range r.Effects {
		dst = appendEffect(dst, start, &r.Effects[i])
	}
	rec := dst[start:]
	binary.LittleEndian.PutUint32(rec, uint32(len(rec)-frame))
	binary.LittleEndian.PutUint32(rec[4:], checksum(salt, rec))
	return dst
}

// checksum covers the length and the payload of the framed record rec.
func checksum(salt uint32, rec []byte) uint32 {
	return crc32.Update(crc32.Update(salt, castagnoli, rec[:4]), castagnoli, rec[frame:])
}

func appendTime(dst []byte, t image.Time) []byte {
	dst = binary.AppendVarint(dst, t.Sec)
	return binary.AppendUvarint(dst, uint64(t.Nsec))
}

func appendBytes(dst []byte, b string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// appendData writes the length and the bytes and notes where the bytes lie.
func appendData(dst []byte, start int, e *Effect) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(e.Data)))
	e.At = int64(len(dst) - start)
	return append(dst, e.Data...)
}

func appendEffect(dst []byte, start int, e *Effect) []byte {
	u := binary.AppendUvarint
	dst = append(dst, byte(e.Kind))
	switch e.Kind {
	case New:
		dst = u(dst, e.Ino)
		dst = u(dst, uint64(e.Mode))
		dst = u(dst, uint64(e.UID))
		dst = u(dst, uint64(e.GID))
		dst = u(dst, uint64(e.Rdev))
		dst = u(dst, uint64(e.Nlink))
		dst = u(dst, e.Parent)
		dst = appendData(dst, start, e)
	case Attr:
		dst = u(dst, e.Ino)
		dst = u(dst, uint64(e.Mask))
		for _, f := range [...]struct {
			bit uint32
			val uint64
		}{{MaskMode, uint64(e.Mode)}, {MaskUID, uint64(e.UID)}, {MaskGID, uint64(e.GID)}, {MaskNlink, uint64(e.Nlink)}, {MaskParent, e.Parent}} {
			if e.Mask&f.bit != 0 {
				dst = u(dst, f.val)
			}
		}
		if e.Mask&MaskAtime != 0 {
			dst = appendTime(dst, e.Atime)
		}
		if e.Mask&MaskMtime != 0 {
			dst = appendTime(dst, e.Mtime)
		}
		if e.Mask&MaskCtime != 0 {
			dst = appendTime(dst, e.Ctime)
		}
	case Link:
		dst = u(dst, e.Dir)
		dst = appendBytes(dst, e.Name)
		dst = u(dst, e.Ino)
		dst = append(dst, e.Type)
		dst = u(dst, e.Pos)
	case Unlink:
		dst = u(dst, e.Dir)
		dst = appendBytes(dst, e.Name)
	case Inline:
		dst = append(dst, e.Flags)
		dst = u(dst, e.Ino)
		dst = u(dst, uint64(e.Off))
		dst = appendData(dst, start, e)
	case Block:
		dst = append(dst, e.Flags)
		dst = u(dst, e.Ino)
		dst = u(dst, uint64(e.Off))
		dst = u(dst, uint64(e.Len))
		dst = u(dst, uint64(e.Loc))
		dst = binary.LittleEndian.AppendUint32(dst, e.CRC)
	case Size:
		dst = append(dst, e.Flags)
		dst = u(dst, e.Ino)
		dst = u(dst, uint64(e.Len))
	case Zero:
		dst = append(dst, e.Flags)
		dst = u(dst, e.Ino)
		dst = u(dst, uint64(e.Off))
		dst = u(dst, uint64(e.Len))
	case SetXattr:
		dst = u(dst, e.Ino)
		dst = appendBytes(dst, e.Name)
		dst = appendData(dst, start, e)
	case DelXattr:
		dst = u(dst, e.Ino)
		dst = appendBytes(dst, e.Name)
	case Drop:
		dst = u(dst, e.Ino)
	case Sync:
		dst = u(dst, uint64(e.Off))
		dst = u(dst, uint64(e.Len))
	case Session:
		dst = append(dst, e.Boot[:]...)
		dst = append(dst, e.Conn[:]...)
	case DropOrphans:
	case Clone:
		dst = append(dst, e.Flags)
		dst = u(dst, e.Ino)
		dst = u(dst, uint64(e.Off))
		dst = u(dst, uint64(e.Len))
		dst = u(dst, e.Dst)
		dst = u(dst, uint64(e.DstOff))
	default:
		panic("journal: effect without a kind")
	}
	return dst
}
