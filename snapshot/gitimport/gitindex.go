package gitimport

import (
	"crypto/sha1"
	"encoding/binary"
	"slices"
	"strings"

	"tine/snapshot/gitimport/objects"
)

// tracked is one entry of the index.
type tracked struct {
	path string
	mode uint32 // git's
	blob objects.ID
	// at is the file in the workspace if it has exactly these bytes and mode; nil if it is changed or gone, which makes git
	// look at it.
	at *item
}

// cacheTree is the index's TREE extension: it spares git writing, and comparing, trees that the index has as they are.
type cacheTree struct {
	name  string
	id    objects.ID
	files int // entries of the index below
	subs  []*cacheTree
}

// encodeIndex writes an index of version 2 with entries in the order of paths (a walk of git trees has it), and the
// trees that they were taken from.
//
//	"DIRC", version, number of entries; entries; "TREE", length, trees in depth-first order; SHA-1 of all before
//	entry: ctime s, ns; mtime s, ns; dev; ino; mode; uid; gid; size (u32 each); id (20); flags u16 (name's length);
//	       name; 1 to 8 NULs up to a multiple of 8
//	tree:  name NUL, entries SPACE subtrees LF (decimal), id (20)
func encodeIndex(files []tracked, root *cacheTree) []byte {
	size := 12 + 28
	for i := range files {
		size += 62 + len(files[i].path) + 8
	}
	b := make([]byte, 0, size+size/8)
	b = append(b, "DIRC\x00\x00\x00\x02"...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(files)))
	for i := range files {
		b = files[i].append(b)
	}
	at := len(b)
	b = append(b, "TREE\x00\x00\x00\x00"...)
	b = root.append(b)
	binary.BigEndian.PutUint32(b[at+4:], uint32(len(b)-at-8))
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

func (f *tracked) append(b []byte) []byte {
	at := len(b)
	var stat [10]uint32
	stat[6] = f.mode
	if f.at != nil {
		// What the fork reports. The device differs in each mount; with core.checkStat=minimal git doesn't look at it.
		t := f.at.mtime
		stat = [10]uint32{uint32(t.Sec), t.Nsec, uint32(t.Sec), t.Nsec, 0, uint32(f.at.ino), f.mode, 0, 0, uint32(f.at.size)}
	}
	for _, v := range stat {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	b = append(b, f.blob[:]...)
	b = binary.BigEndian.AppendUint16(b, uint16(min(len(f.path), 0xfff)))
	b = append(b, f.path...)
	return append(b, "\x00\x00\x00\x00\x00\x00\x00\x00"[:8-(len(b)-at)%8]...)
}

func (t *cacheTree) append(b []byte) []byte {
	b = append(b, t.name...)
	b = append(b, 0)
	b = appendDecimal(b, t.files)
	b = append(b, ' ')
	b = appendDecimal(b, len(t.subs))
	b = append(b, '\n')
	b = append(b, t.id[:]...)
	// git keeps subtrees by length, then by name.
	subs := slices.Clone(t.subs)
	slices.SortFunc(subs, func(x, y *cacheTree) int {
		if len(x.name) != len(y.name) {
			return len(x.name) - len(y.name)
		}
		return strings.Compare(x.name, y.name)
	})
	for _, s := range subs {
		b = s.append(b)
	}
	return b
}

func appendDecimal(b []byte, n int) []byte {
	if n >= 10 {
		b = appendDecimal(b, n/10)
	}
	return append(b, byte('0'+n%10))
}
