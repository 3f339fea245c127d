package image

import (
	"bytes"
	"fmt"

	"tine/snapshot/content"
)

// Types of entries and nodes, S_IFMT >> 12. Sockets can be in a tree; they are inert.
const (
	typeFIFO    = 1
	typeChar    = 2
	typeDir     = 4
	typeBlock   = 6
	typeFile    = 8
	typeSymlink = 10
	typeSocket  = 12
	// typeWhiteout in a delta's entry says that the base's entry is gone.
	typeWhiteout = 14
)

// nodeWhiteout in a delta's node record says that the base's node is gone.
const nodeWhiteout = 1

// maxXattr (64 KiB) is Linux's limit of one attribute's value; XATTR_SIZE_MAX.
const maxXattr = 64 << 10

func typeOf(mode uint32) uint8 { return uint8(mode >> 12) }

// IsDir and IsRegular are what most callers ask of a mode.
func (n *Node) IsDir() bool     { return typeOf(n.Mode) == typeDir }
func (n *Node) IsRegular() bool { return typeOf(n.Mode) == typeFile }

// hasContent says whether nodes of a type have a content.
func hasContent(typ uint8) bool { return typ == typeFile || typ == typeSymlink }

// checkNode says what is wrong with a node by itself.
func checkNode(n *Node) error {
	typ := typeOf(n.Mode)
	switch typ {
	case typeFIFO, typeDir, typeFile, typeSymlink, typeSocket:
		if n.Rdev != 0 {
			return fmt.Errorf("node %d has a device number and is no device", n.Ino)
		}
	case typeChar, typeBlock:
	default:
		return fmt.Errorf("node %d has the unknown mode %#o", n.Ino, n.Mode)
	}
	if n.Ino == 0 {
		return fmt.Errorf("node number 0")
	}
	if n.Size < 0 || n.Size != 0 && !hasContent(typ) {
		return fmt.Errorf("node %d (mode %#o) has size %d", n.Ino, n.Mode, n.Size)
	}
	if n.Mtime.Nsec >= 1e9 || n.Ctime.Nsec >= 1e9 || n.Btime.Nsec >= 1e9 {
		return fmt.Errorf("node %d has a time with a second or more in nanoseconds", n.Ino)
	}
	if hasContent(typ) == n.Content.IsZero() {
		return fmt.Errorf("node %d (mode %#o) has content %s", n.Ino, n.Mode, n.Content)
	}
	if err := checkContent(n.Content); err != nil {
		return fmt.Errorf("node %d: %w", n.Ino, err)
	}
	if l := len(n.Gitlink); l != 0 && (typ != typeDir || l != 20 && l != 32) {
		return fmt.Errorf("node %d has a gitlink of %d bytes", n.Ino, l)
	}
	for i, x := range n.Xattrs {
		if len(x.Name) == 0 || len(x.Name) > 255 || bytes.IndexByte([]byte(x.Name), 0) >= 0 || len(x.Value) > maxXattr {
			return fmt.Errorf("node %d has the malformed extended attribute %q", n.Ino, x.Name)
		}
		if i > 0 && n.Xattrs[i-1].Name >= x.Name {
			return fmt.Errorf("node %d: extended attributes are not sorted at %q", n.Ino, x.Name)
		}
	}
	return nil
}

func checkContent(id content.ID) error {
	if id.Algo == content.Chunk256 || id.Algo > content.Chunk256 {
		return fmt.Errorf("%s is no file's content", id)
	}
	for _, b := range id.Digest[id.Algo.Size():] {
		if b != 0 {
			return fmt.Errorf("content %s has a longer digest", id)
		}
	}
	return nil
}

// checkName says whether a directory may have an entry of that name.
func checkName(name []byte) error {
	if len(name) == 0 || len(name) > 255 || bytes.IndexByte(name, '/') >= 0 || bytes.IndexByte(name, 0) >= 0 ||
		name[0] == '.' && (len(name) == 1 || len(name) == 2 && name[1] == '.') {
		return fmt.Errorf("%q can't be a name", name)
	}
	return nil
}

// nodeRec is a node's record, decoded; indices are 0 for none, else 1 + the place in their table.
type nodeRec struct {
	Node            // without Content, Gitlink, Xattrs
	content  uint32 // files and symlinks
	dir      uint32 // directories: in the dirs section; 0 in a delta when no entry of it changed
	name     uint32 // directories: the entry that names it; 0 in a delta when the base's does, and for Root
	gitlink  uint32
	xattrs   uint32
	whiteout bool
}

func (r *nodeRec) encode(b []byte) {
	le.PutUint64(b[0:], r.Ino)
	le.PutUint64(b[8:], r.Parent)
	le.PutUint32(b[16:], r.Mode)
	le.PutUint32(b[20:], r.Nlink)
	le.PutUint32(b[24:], r.UID)
	le.PutUint32(b[28:], r.GID)
	if r.IsDir() {
		le.PutUint32(b[32:], r.name)
		le.PutUint32(b[36:], r.dir)
	} else {
		le.PutUint32(b[32:], r.Rdev)
		le.PutUint32(b[36:], r.content)
	}
	le.PutUint64(b[40:], uint64(r.Size))
	le.PutUint64(b[48:], uint64(r.Mtime.Sec))
	le.PutUint64(b[56:], uint64(r.Ctime.Sec))
	le.PutUint64(b[64:], uint64(r.Btime.Sec))
	le.PutUint32(b[72:], r.Mtime.Nsec)
	le.PutUint32(b[76:], r.Ctime.Nsec)
	le.PutUint32(b[80:], r.Btime.Nsec)
	le.PutUint32(b[84:], r.gitlink)
	le.PutUint32(b[88:], r.xattrs)
	flags := uint32(0)
	if r.whiteout {
		flags = nodeWhiteout
	}
	le.PutUint32(b[92:], flags)
}

func (r *nodeRec) decode(b []byte) {
	_ = b[nodeSize-1]
	r.Ino, r.Parent = le.Uint64(b[0:]), le.Uint64(b[8:])
	r.Mode, r.Nlink = le.Uint32(b[16:]), le.Uint32(b[20:])
	r.UID, r.GID = le.Uint32(b[24:]), le.Uint32(b[28:])
	if r.IsDir() {
		r.name, r.dir = le.Uint32(b[32:]), le.Uint32(b[36:])
	} else {
		r.Rdev, r.content = le.Uint32(b[32:]), le.Uint32(b[36:])
	}
	r.Size = int64(le.Uint64(b[40:]))
	r.Mtime = Time{int64(le.Uint64(b[48:])), le.Uint32(b[72:])}
	r.Ctime = Time{int64(le.Uint64(b[56:])), le.Uint32(b[76:])}
	r.Btime = Time{int64(le.Uint64(b[64:])), le.Uint32(b[80:])}
	r.gitlink, r.xattrs = le.Uint32(b[84:]), le.Uint32(b[88:])
	r.whiteout = le.Uint32(b[92:])&nodeWhiteout != 0
}

// dirRec is where a directory's entries are.
type dirRec struct {
	ino   uint64
	first uint64
	count uint32 // records in this image
	live  uint32 // entries of the merged directory
}

func (d *dirRec) append(b []byte) []byte {
	b = le.AppendUint64(b, d.ino)
	b = le.AppendUint64(b, d.first)
	b = le.AppendUint32(b, d.count)
	return le.AppendUint32(b, d.live)
}

func decodeDirRec(b []byte) dirRec {
	return dirRec{le.Uint64(b), le.Uint64(b[8:]), le.Uint32(b[16:]), le.Uint32(b[20:])}
}

// packName is an entry's second word: the name's place in the heap, its length and the entry's type.
func packName(off uint64, n int, typ uint8) uint64 { return off | uint64(n)<<48 | uint64(typ)<<56 }

func unpackName(w uint64) (off uint64, n uint64, typ uint8) {
	return w & (1<<48 - 1), w >> 48 & 255, uint8(w >> 56)
}

// recTables gives the records that a node's indices (less 1) point to.
type recTables interface {
	contentRec(i uint32) []byte
	gitlinkRec(i uint32) []byte
	// xattrSet returns how many attributes a set has and their encoding.
	xattrSet(i uint32) (n uint32, data []byte)
}

// appendRecordValue is appendNodeValue for an encoded record.
func appendRecordValue(b, rec []byte, t recTables) []byte {
	dir := typeOf(le.Uint32(rec[16:])) == typeDir
	b = append(b, rec[16:20]...) // mode
	b = append(b, rec[24:32]...) // uid, gid
	if dir {
		b = append(b, 0, 0, 0, 0)
	} else {
		b = append(b, rec[32:36]...) // rdev
	}
	b = append(b, rec[40:48]...) // size
	for i := range 3 {
		b = append(b, rec[48+8*i:56+8*i]...)
		b = append(b, rec[72+4*i:76+4*i]...)
	}
	if c := le.Uint32(rec[36:]); c != 0 && !dir {
		r := t.contentRec(c - 1)
		b = append(b, r[32])
		b = append(b, r[:32]...)
	} else {
		b = append(b, noContent[:]...)
	}
	if g := le.Uint32(rec[84:]); g != 0 {
		r := t.gitlinkRec(g - 1)
		n := min(r[0], 32)
		b = append(b, n)
		b = append(b, r[8:8+n]...)
	} else {
		b = append(b, 0)
	}
	if x := le.Uint32(rec[88:]); x != 0 {
		n, data := t.xattrSet(x - 1)
		b = le.AppendUint32(b, n)
		return append(b, data...)
	}
	return append(b, 0, 0, 0, 0)
}

var noContent [33]byte

// searchNodes finds a number among n sorted records, of which rec gives the i-th's. Numbers are mostly dense, so that
// the record is sought where it would be without gaps, and no further back than the number of gaps.
func searchNodes(n, first, last, ino uint64, at func(i uint64) uint64) (uint64, bool) {
	if n == 0 || ino < first || ino > last {
		return 0, false
	}
	guess := ino - first
	gaps := last - first + 1 - n
	hi := min(guess, n-1)
	lo := uint64(0)
	if guess > gaps {
		lo = guess - gaps
	}
	for lo <= hi {
		mid := hi - (hi-lo)/2
		if guess < n {
			mid, guess = guess, n // the first look only
		}
		switch v := at(mid); {
		case v == ino:
			return mid, true
		case v < ino:
			lo = mid + 1
		case mid == 0:
			return 0, false
		default:
			hi = mid - 1
		}
	}
	return 0, false
}
