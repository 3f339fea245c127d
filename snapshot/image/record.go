package image

import (
	"bytes"
	"fmt"
	"math/bits"
	"strings"

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
	if err := checkXattrs(n.Xattrs); err != nil {
		return fmt.Errorf("node %d: %w", n.Ino, err)
	}
	return nil
}

func checkXattrs(set []Xattr) error {
	for i, x := range set {
		if len(x.Name) == 0 || len(x.Name) > 255 || strings.IndexByte(x.Name, 0) >= 0 || len(x.Value) > maxXattr {
			return fmt.Errorf("malformed extended attribute %q", x.Name)
		}
		if i > 0 && set[i-1].Name >= x.Name {
			return fmt.Errorf("extended attributes are not sorted at %q", x.Name)
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

// encodeNode writes what is known of a node by itself into a record that is zero: all but nlink, parent, name, dir.
func encodeNode(b []byte, n *Node, content, gitlink, xattrs uint32) {
	_ = b[nodeSize-1]
	le.PutUint64(b[0:], n.Ino)
	le.PutUint32(b[16:], n.Mode)
	le.PutUint32(b[24:], n.UID)
	le.PutUint32(b[28:], n.GID)
	le.PutUint32(b[32:], n.Rdev)
	le.PutUint32(b[36:], content)
	le.PutUint64(b[40:], uint64(n.Size))
	le.PutUint64(b[48:], uint64(n.Mtime.Sec))
	le.PutUint64(b[56:], uint64(n.Ctime.Sec))
	le.PutUint64(b[64:], uint64(n.Btime.Sec))
	le.PutUint32(b[72:], n.Mtime.Nsec)
	le.PutUint32(b[76:], n.Ctime.Nsec)
	le.PutUint32(b[80:], n.Btime.Nsec)
	le.PutUint32(b[84:], gitlink)
	le.PutUint32(b[88:], xattrs)
}

// decodeNode is the inverse, with nlink and parent and without what lies in tables.
func decodeNode(b []byte, n *Node) {
	_ = b[nodeSize-1]
	n.Ino, n.Parent = le.Uint64(b[0:]), le.Uint64(b[8:])
	n.Mode, n.Nlink = le.Uint32(b[16:]), le.Uint32(b[20:])
	n.UID, n.GID = le.Uint32(b[24:]), le.Uint32(b[28:])
	if !n.IsDir() {
		n.Rdev = le.Uint32(b[32:])
	}
	n.Size = int64(le.Uint64(b[40:]))
	n.Mtime = Time{int64(le.Uint64(b[48:])), le.Uint32(b[72:])}
	n.Ctime = Time{int64(le.Uint64(b[56:])), le.Uint32(b[76:])}
	n.Btime = Time{int64(le.Uint64(b[64:])), le.Uint32(b[80:])}
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

// guesses is how often searchNumbers interpolates before it halves: numbers without gaps need one guess, evenly
// spread changes two or three, and whatever else there is costs no more than bisection and these.
const guesses = 3

// searchNumbers finds a number among n sorted ones, of which at gives the i-th and first and last the outermost.
func searchNumbers(n, first, last, want uint64, at func(i uint64) uint64) (uint64, bool) {
	lo, hi := uint64(0), n
	for step := 0; lo < hi && want >= first && want <= last; step++ {
		mid := (lo + hi) / 2
		if d := last - first; step < guesses && d > 0 {
			// want-first <= d and hi-lo <= 2^32, so that the quotient fits.
			h, l := bits.Mul64(want-first, hi-lo-1)
			q, _ := bits.Div64(h, l, d)
			mid = lo + q
		}
		switch v := at(mid); {
		case v == want:
			return mid, true
		case v < want:
			lo, first = mid+1, v+1
		default:
			hi, last = mid, v-1
		}
	}
	return 0, false
}
