package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"tine/snapshot/content"
)

// Sizes in bytes of the segment format; FORMAT.md "Segments".
const (
	segHeaderLen = 32
	recHeaderLen = 96
	recAlign     = 8
	segVersion   = 1
	// maxRecord bounds what a header may claim: a chunk list of a 1 TiB content is 32 MiB.
	maxRecord = 1 << 30
)

var (
	segMagic = [8]byte{'T', 'I', 'N', 'E', 'S', 'E', 'G', '1'}
	recMagic = [4]byte{'T', 'R', 'E', 'C'}
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// recordKind says what a record's data are. The numbers are on disk.
type recordKind uint8

const (
	kindBytes  recordKind = 1 // the content itself
	kindChunks recordKind = 2 // the chunk digests of a Tree256 content
	kindSame   recordKind = 3 // another id of the same bytes (33 bytes: algorithm, digest)
	kindObject recordKind = 4 // none: the bytes are the file in objects/
	kindGitID  recordKind = 5 // the git blob id of a content that is named otherwise (33 bytes)
)

func (k recordKind) valid() bool { return k >= kindBytes && k <= kindGitID }

// recordKey is what a record is looked up by: a content's bytes (class 0), or its git id in an object format (class
// 1, 2). The layout is that of the index, which compares keys as bytes.
type recordKey [34]byte

const classContent = 0

func contentKey(id content.ID) recordKey { return makeKey(id, classContent) }

func gitIDKey(id content.ID, f content.ObjectFormat) recordKey { return makeKey(id, uint8(f)) }

func makeKey(id content.ID, class uint8) (k recordKey) {
	copy(k[:32], id.Digest[:])
	k[32], k[33] = uint8(id.Algo), class
	return k
}

func (k recordKey) id() content.ID {
	id := content.ID{Algo: content.Algo(k[32])}
	copy(id.Digest[:], k[:32])
	return id
}

// record is a segment record without its data.
type record struct {
	key    recordKey
	kind   recordKind
	sha256 [32]byte // of the content, for kindBytes and kindObject; else zero
	size   int64    // of the content
	length int64    // of the data that follow the header
	crc    uint32   // CRC32C of the data
}

// span is what the record takes up in a segment.
func (r *record) span() int64 { return recHeaderLen + (r.length+recAlign-1)/recAlign*recAlign }

// encode writes the header to b[:recHeaderLen].
func (r *record) encode(b []byte) {
	clear(b[:recHeaderLen])
	copy(b[0:], recMagic[:])
	b[4] = byte(r.kind)
	b[5] = 0 // encoding of the data: as they are
	b[6] = r.key[32]
	b[7] = r.key[33]
	binary.LittleEndian.PutUint32(b[8:], uint32(r.length))
	binary.LittleEndian.PutUint32(b[12:], r.crc)
	binary.LittleEndian.PutUint64(b[16:], uint64(r.size))
	copy(b[24:], r.key[:32])
	copy(b[56:], r.sha256[:])
	binary.LittleEndian.PutUint32(b[92:], crc32.Checksum(b[:92], crcTable))
}

var errNotRecord = errors.New("not a record")

// decodeRecord is the inverse of encode. It accepts only what encode writes.
func decodeRecord(b []byte) (record, error) {
	var r record
	if len(b) < recHeaderLen || [4]byte(b[:4]) != recMagic {
		return r, errNotRecord
	}
	if crc32.Checksum(b[:92], crcTable) != binary.LittleEndian.Uint32(b[92:]) {
		return r, fmt.Errorf("%w: header checksum", errNotRecord)
	}
	r.kind = recordKind(b[4])
	copy(r.key[:32], b[24:56])
	r.key[32], r.key[33] = b[6], b[7]
	copy(r.sha256[:], b[56:88])
	r.length = int64(binary.LittleEndian.Uint32(b[8:]))
	r.crc = binary.LittleEndian.Uint32(b[12:])
	r.size = int64(binary.LittleEndian.Uint64(b[16:]))
	if b[5] != 0 || binary.LittleEndian.Uint32(b[88:]) != 0 {
		return r, fmt.Errorf("record of an unknown encoding (%d)", b[5])
	}
	return r, r.check()
}

// check refuses fields that no record of this version has.
func (r *record) check() error {
	n := content.Algo(r.key[32]).Size()
	switch {
	case !r.kind.valid(), n == 0:
		return fmt.Errorf("record of unknown kind %d or algorithm %d", r.kind, r.key[32])
	case (r.kind == kindGitID) != (r.key[33] != classContent), r.key[33] > uint8(content.SHA256):
		return fmt.Errorf("record of kind %d in class %d", r.kind, r.key[33])
	case r.size < 0, r.length > maxRecord:
		return fmt.Errorf("record of %d bytes for a content of %d", r.length, r.size)
	case r.kind == kindBytes && r.length != r.size,
		r.kind == kindObject && r.length != 0,
		(r.kind == kindSame || r.kind == kindGitID) && r.length != 33,
		r.kind == kindChunks && (content.Algo(r.key[32]) != content.Tree256 || r.size <= content.MaxSmall || r.length != 32*int64(content.NumChunks(r.size))):
		return fmt.Errorf("record of kind %d with %d bytes of data for a content of %d", r.kind, r.length, r.size)
	}
	for _, b := range r.key[n:32] {
		if b != 0 {
			return errors.New("record with a digest that is too long")
		}
	}
	return nil
}

func encodeSegHeader(name segName) []byte {
	b := make([]byte, segHeaderLen)
	copy(b, segMagic[:])
	binary.LittleEndian.PutUint32(b[8:], segVersion)
	binary.LittleEndian.PutUint64(b[16:], uint64(name))
	binary.LittleEndian.PutUint32(b[28:], crc32.Checksum(b[:28], crcTable))
	return b
}

func checkSegHeader(b []byte, name segName) error {
	switch {
	case len(b) < segHeaderLen || [8]byte(b[:8]) != segMagic:
		return fmt.Errorf("segment %s: not a segment", name)
	case crc32.Checksum(b[:28], crcTable) != binary.LittleEndian.Uint32(b[28:]):
		return fmt.Errorf("segment %s: header checksum", name)
	case binary.LittleEndian.Uint32(b[8:]) != segVersion:
		return &VersionError{What: "segment " + name.String(), Got: int(binary.LittleEndian.Uint32(b[8:])), Known: segVersion}
	case segName(binary.LittleEndian.Uint64(b[16:])) != name:
		return fmt.Errorf("segment %s: is another segment under this name", name)
	}
	return nil
}

func encodeID(id content.ID) []byte { return append([]byte{byte(id.Algo)}, id.Digest[:]...) }

func decodeID(b []byte) (content.ID, error) {
	if len(b) != 33 {
		return content.ID{}, errors.New("content id of a wrong length")
	}
	id := content.ID{Algo: content.Algo(b[0]), Digest: [32]byte(b[1:])}
	n := id.Algo.Size()
	if n == 0 || [32]byte(append(append([]byte{}, id.Bytes()...), make([]byte, 32-n)...)) != id.Digest {
		return content.ID{}, fmt.Errorf("content id of unknown algorithm %d", b[0])
	}
	return id, nil
}
