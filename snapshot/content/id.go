package content

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// Algo says how a content's digest is computed from its bytes, and nothing else: two files with equal bytes have
// equal ids wherever they came from.
type Algo uint8

// The numbers are part of the on-disk formats (snapshot/FORMAT.md) and never change.
const (
	// None is the zero ID's algorithm: no content (directories, devices, FIFOs, sockets).
	None Algo = 0
	// GitSHA1 is the git blob id, SHA-1 object format, of contents of at most MaxSmall bytes.
	GitSHA1 Algo = 1
	// GitSHA256 is the git blob id in the SHA-256 object format, of contents of at most MaxSmall bytes.
	GitSHA256 Algo = 2
	// Tree256 is the root of the SHA-256 tree over ChunkSize chunks, of contents larger than MaxSmall.
	Tree256 Algo = 3
	// LooseSHA1 names the canonical loose-object encoding (zlib stored blocks) of the blob whose SHA-1 id is the
	// digest. A file that has exactly those bytes has this id, whatever its size.
	LooseSHA1 Algo = 4
	// LooseSHA256 is LooseSHA1 for the SHA-256 object format.
	LooseSHA256 Algo = 5
	// Chunk256 is the plain SHA-256 of one chunk of a Tree256 content. It never names a file.
	Chunk256 Algo = 6
)

const (
	// MaxSmall (8 MiB) is the largest content named by its git blob id; DESIGN "Content ids".
	MaxSmall = 8 << 20
	// ChunkSize (1 MiB) is the unit of hashing and of sharing in larger contents.
	ChunkSize = 1 << 20
)

// ObjectFormat is the git object format of a checkpoint; it selects GitSHA1 or GitSHA256 for small contents.
type ObjectFormat uint8

const (
	SHA1   ObjectFormat = 1
	SHA256 ObjectFormat = 2
)

// String gives git's name of the format, "sha1" or "sha256".
func (f ObjectFormat) String() string {
	switch f {
	case SHA1:
		return "sha1"
	case SHA256:
		return "sha256"
	}
	return fmt.Sprintf("object-format-%d", uint8(f))
}

// ID names bytes. The zero ID names nothing. It is comparable and can be a map key.
type ID struct {
	Algo   Algo
	Digest [32]byte // 20 bytes and 12 zeroes for SHA-1
}

// IsZero reports whether id names nothing.
func (id ID) IsZero() bool { return id.Algo == None }

// Bytes is the digest at its natural length (20 or 32 bytes).
func (id ID) Bytes() []byte { return id.Digest[:id.Algo.Size()] }

// Size is the digest's length in bytes, 0 for an unknown algorithm.
func (a Algo) Size() int {
	switch a {
	case GitSHA1, LooseSHA1:
		return 20
	case GitSHA256, Tree256, LooseSHA256, Chunk256:
		return 32
	}
	return 0
}

var algoNames = [...]string{"none", "git-sha1", "git-sha256", "tree-sha256", "loose-sha1", "loose-sha256", "chunk-sha256"}

func (a Algo) String() string {
	if int(a) < len(algoNames) {
		return algoNames[a]
	}
	return fmt.Sprintf("algo-%d", uint8(a))
}

// String is "algorithm:hex", the form that Parse takes.
func (id ID) String() string {
	if id.IsZero() {
		return "none"
	}
	return id.Algo.String() + ":" + hex.EncodeToString(id.Bytes())
}

// Parse is the inverse of String.
func Parse(s string) (ID, error) {
	if s == "none" {
		return ID{}, nil
	}
	name, hx, ok := strings.Cut(s, ":")
	if ok {
		for a := range algoNames {
			if algoNames[a] != name {
				continue
			}
			b, err := hex.DecodeString(hx)
			if err != nil || len(b) != Algo(a).Size() || len(b) == 0 {
				break
			}
			id := ID{Algo: Algo(a)}
			copy(id.Digest[:], b)
			return id, nil
		}
	}
	return ID{}, fmt.Errorf("not a content id: %q", s)
}

// Reader reads one content. ReadAt is safe for concurrent use, verifies what it returns against the id at the latest
// before the first byte of an unverified source is given out, and fails (never returns wrong bytes) when it can't.
type Reader interface {
	io.ReaderAt
	io.Closer
	// Size in bytes.
	Size() int64
}

// Opener finds contents by id. A content that no source has gives a *MissingError, one whose bytes don't match a
// *CorruptError. Safe for concurrent use.
type Opener interface {
	Open(id ID) (Reader, error)
}

// MissingError says that no source has the content.
type MissingError struct {
	ID    ID
	Cause error // what the last source said; may be nil
}

func (e *MissingError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("content %s is in no source: %v", e.ID, e.Cause)
	}
	return fmt.Sprintf("content %s is in no source", e.ID)
}

func (e *MissingError) Unwrap() error { return e.Cause }

// CorruptError says that a source gave bytes that are not the named ones.
type CorruptError struct {
	ID  ID
	Got ID     // what the bytes are, where that was computed
	Why string // where and what
}

func (e *CorruptError) Error() string { return fmt.Sprintf("content %s is corrupt: %s", e.ID, e.Why) }
