package image

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"tine/snapshot/content"
)

// Numbers of the file format; snapshot/FORMAT.md, "Tree image". They never change.
const (
	magic   = "tineimg\n"
	version = 1
	// identityFormat numbers the definition of the two roots; an image format that keeps them keeps checkpoint ids.
	identityFormat = 1

	pageSize = 4096
	// maxFile (1 TiB) is far above what 2^32 nodes need in practice and keeps sums of offsets inside 64 bits.
	maxFile = 1 << 40
	// maxRecords leaves 0 free to mean "none" in fields that hold an index + 1.
	maxRecords = 1<<32 - 2

	sectionTable = 192 // offset of the section table in the header page
	sectionSlots = 32
	headerCRC    = pageSize - 4
)

// Features that a reader must know to read the file at all. None exists yet.
const knownIncompat uint32 = 0

// form says whether an image stands alone.
type form uint8

const (
	formBase  form = 1
	formDelta form = 2
)

// Sections, in file order.
const (
	secNodes = iota
	secDirs
	secEntries
	secHeap
	secContents
	secGitlinks
	secXattrSets
	secXattrData
	secByHash
	secNodeTrie
	secEntryTrie
	secCRC
	numSections
)

// recordSize is the size of each section's records in bytes; 1 for plain bytes.
var recordSize = [numSections]uint64{
	secNodes:     nodeSize,
	secDirs:      dirSize,
	secEntries:   entrySize,
	secHeap:      1,
	secContents:  contentSize,
	secGitlinks:  gitlinkSize,
	secXattrSets: xattrSetSize,
	secXattrData: 1,
	secByHash:    4,
	secNodeTrie:  trieSize,
	secEntryTrie: trieSize,
	secCRC:       4,
}

var sectionNames = [numSections]string{"nodes", "dirs", "entries", "heap", "contents", "gitlinks", "xattr sets",
	"xattr data", "hash order", "node trie", "entry trie", "page checksums"}

const (
	nodeSize     = 96
	dirSize      = 24
	entrySize    = 16
	contentSize  = 64
	gitlinkSize  = 40
	xattrSetSize = 16
	trieSize     = 48
	sectionAlign = 64 // a cache line, so that records of 16 and 64 bytes never straddle one
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var le = binary.LittleEndian

type extent struct{ off, len uint64 }

// header is the first page, decoded.
type header struct {
	form     form
	format   content.ObjectFormat
	fileSize uint64
	nextIno  uint64
	inodes   uint64 // of the merged tree, as are bytes and entries
	bytes    uint64
	entries  uint64
	base     [32]byte // checkpoint id of the base image; zero in the base form
	id       Identity
	crcOfCRC uint32
	sections [numSections]extent
}

func (h *header) encode() []byte {
	p := make([]byte, pageSize)
	copy(p, magic)
	le.PutUint32(p[8:], version)
	p[20], p[21] = byte(h.form), byte(h.format)
	le.PutUint64(p[24:], h.fileSize)
	le.PutUint64(p[32:], h.nextIno)
	le.PutUint64(p[40:], h.inodes)
	le.PutUint64(p[48:], h.bytes)
	le.PutUint64(p[56:], h.entries)
	copy(p[64:], h.base[:])
	copy(p[96:], h.id.EntriesRoot[:])
	copy(p[128:], h.id.NodesRoot[:])
	le.PutUint32(p[160:], h.crcOfCRC)
	for i, s := range h.sections {
		le.PutUint64(p[sectionTable+16*i:], s.off)
		le.PutUint64(p[sectionTable+16*i+8:], s.len)
	}
	le.PutUint32(p[headerCRC:], crc32.Checksum(p[:headerCRC], castagnoli))
	return p
}

// decodeHeader checks everything about the first page that doesn't need the rest of the file. size is the file's.
func decodeHeader(p []byte, size uint64) (*header, error) {
	if len(p) < pageSize || string(p[:8]) != magic {
		return nil, fmt.Errorf("not a tree image")
	}
	// The version comes before the checksum: another version may have another checksum.
	if v := le.Uint32(p[8:]); v != version {
		return nil, &VersionError{Version: v}
	}
	if crc32.Checksum(p[:headerCRC], castagnoli) != le.Uint32(p[headerCRC:]) {
		return nil, fmt.Errorf("header checksum differs")
	}
	if f := le.Uint32(p[12:]) &^ knownIncompat; f != 0 {
		return nil, &VersionError{Version: version, Features: f}
	}
	h := &header{
		form:     form(p[20]),
		format:   content.ObjectFormat(p[21]),
		fileSize: le.Uint64(p[24:]),
		nextIno:  le.Uint64(p[32:]),
		inodes:   le.Uint64(p[40:]),
		bytes:    le.Uint64(p[48:]),
		entries:  le.Uint64(p[56:]),
		base:     [32]byte(p[64:96]),
		crcOfCRC: le.Uint32(p[160:]),
	}
	h.id = Identity{Format: identityFormat, ObjectFormat: h.format, EntriesRoot: [32]byte(p[96:128]), NodesRoot: [32]byte(p[128:160])}
	if h.form != formBase && h.form != formDelta {
		return nil, fmt.Errorf("unknown form %d", h.form)
	}
	if h.format != content.SHA1 && h.format != content.SHA256 {
		return nil, fmt.Errorf("unknown object format %d", h.format)
	}
	if h.fileSize != size || size > maxFile {
		return nil, fmt.Errorf("size is %d bytes, header says %d", size, h.fileSize)
	}
	for i := range h.sections {
		s := extent{le.Uint64(p[sectionTable+16*i:]), le.Uint64(p[sectionTable+16*i+8:])}
		if s.off < pageSize || s.off > size || s.len > size-s.off || s.off%sectionAlign != 0 {
			return nil, fmt.Errorf("section %q lies outside the file", sectionNames[i])
		}
		if s.len%recordSize[i] != 0 || s.len/recordSize[i] > maxRecords && recordSize[i] > 1 {
			return nil, fmt.Errorf("section %q has a length of %d bytes", sectionNames[i], s.len)
		}
		h.sections[i] = s
	}
	// The checksums cover whole pages from the second one up to themselves, and end the file.
	crc := h.sections[secCRC]
	if crc.off%pageSize != 0 || crc.off+crc.len != size || crc.len/4 != crc.off/pageSize-1 {
		return nil, fmt.Errorf("section %q is misplaced", sectionNames[secCRC])
	}
	for i := range secCRC {
		if s := h.sections[i]; s.off+s.len > crc.off {
			return nil, fmt.Errorf("section %q lies behind the checksums", sectionNames[i])
		}
	}
	return h, nil
}

// VersionError says that an image was written by another version of tine.
type VersionError struct {
	Version  uint32
	Features uint32 // incompatible features that this version doesn't know
}

func (e *VersionError) Error() string {
	if e.Features != 0 {
		return fmt.Sprintf("tree image of version %d uses unknown features %#x; this tine is older", e.Version, e.Features)
	}
	return fmt.Sprintf("tree image has version %d, this tine reads version %d", e.Version, version)
}

// CorruptError says that an image can't be read or isn't well formed at some place.
type CorruptError struct {
	Path string
	Why  string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("tree image %s is damaged: %s", e.Path, e.Why)
}
