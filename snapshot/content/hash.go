package content

import (
	"crypto/sha1"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"strconv"
)

// Sum is what hashing some bytes once tells of them.
type Sum struct {
	ID   ID
	Size int64
	// SHA256 is the plain SHA-256 of the bytes; of the blob inside for a Loose id; zero for a Tree256 id, whose chunks
	// carry their own.
	SHA256 [32]byte
	// Chunks are the chunks' digests in order, for a Tree256 id only.
	Chunks [][32]byte
}

// BlobAlgo is the algorithm of small contents in the format.
func (f ObjectFormat) BlobAlgo() Algo {
	if f == SHA256 {
		return GitSHA256
	}
	return GitSHA1
}

// LooseAlgo is the algorithm of canonical loose encodings in the format.
func (f ObjectFormat) LooseAlgo() Algo {
	if f == SHA256 {
		return LooseSHA256
	}
	return LooseSHA1
}

// HashSize is the length in bytes of the format's object ids.
func (f ObjectFormat) HashSize() int { return f.BlobAlgo().Size() }

// Format is the object format of a git or loose algorithm, and 0 for others.
func (a Algo) Format() ObjectFormat {
	switch a {
	case GitSHA1, LooseSHA1:
		return SHA1
	case GitSHA256, LooseSHA256:
		return SHA256
	}
	return 0
}

// IsBlob reports whether the digest is a git blob id of the bytes themselves.
func (a Algo) IsBlob() bool { return a == GitSHA1 || a == GitSHA256 }

// IsLoose reports whether the digest is the git blob id of the blob inside the bytes.
func (a Algo) IsLoose() bool { return a == LooseSHA1 || a == LooseSHA256 }

// Blob is the git blob id that a Loose id is derived from.
func (id ID) Blob() ID {
	switch id.Algo {
	case LooseSHA1:
		id.Algo = GitSHA1
	case LooseSHA256:
		id.Algo = GitSHA256
	}
	return id
}

// Loose is the id of the canonical loose encoding of the blob id.
func (id ID) Loose() ID {
	switch id.Algo {
	case GitSHA1:
		id.Algo = LooseSHA1
	case GitSHA256:
		id.Algo = LooseSHA256
	}
	return id
}

// ObjectHash is a hash of the format, started with git's header for an object of the type and size.
func ObjectHash(f ObjectFormat, typ string, size int64) hash.Hash {
	var h hash.Hash
	if f == SHA256 {
		h = sha256.New()
	} else {
		h = sha1.New()
	}
	h.Write(objectHeader(typ, size))
	return h
}

func objectHeader(typ string, size int64) []byte {
	b := make([]byte, 0, 32)
	b = append(b, typ...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, size, 10)
	return append(b, 0)
}

// BlobID is the git blob id of data, whatever its size.
func BlobID(data []byte, f ObjectFormat) ID {
	h := ObjectHash(f, "blob", int64(len(data)))
	h.Write(data)
	return sumID(f.BlobAlgo(), h)
}

// BlobIDOf is BlobID of r's first size bytes, read in order.
func BlobIDOf(r io.ReaderAt, size int64, f ObjectFormat) (ID, error) {
	h := ObjectHash(f, "blob", size)
	if err := copyTo(h, r, 0, size); err != nil {
		return ID{}, err
	}
	return sumID(f.BlobAlgo(), h), nil
}

func sumID(a Algo, h hash.Hash) ID {
	id := ID{Algo: a}
	h.Sum(id.Digest[:0])
	return id
}

// HashBytes hashes data as the contents of a file in a checkpoint of the format.
func HashBytes(data []byte, f ObjectFormat) Sum {
	if body, ok := looseBodyOf(data); ok {
		return Sum{ID: BlobID(body, f).Loose(), Size: int64(len(data)), SHA256: sha256.Sum256(body)}
	}
	if len(data) > MaxSmall {
		s, err := hashLarge(bytesReader(data), int64(len(data)))
		if err != nil { // memory can't fail to be read
			panic(err)
		}
		return s
	}
	return Sum{ID: BlobID(data, f), Size: int64(len(data)), SHA256: sha256.Sum256(data)}
}

// Hash hashes r's first size bytes as the contents of a file in a checkpoint of the format. r must not change meanwhile;
// one that ends early is io.ErrUnexpectedEOF. Holes that r tells of (Sparse) are not read.
func Hash(r io.ReaderAt, size int64, f ObjectFormat) (Sum, error) {
	if size < 0 {
		return Sum{}, fmt.Errorf("content of negative size %d", size)
	}
	body, ok, err := OpenLoose(r, size)
	if err != nil {
		return Sum{}, err
	}
	if ok {
		s, err := hashSmall(body, body.Size(), f)
		s.ID, s.Size = s.ID.Loose(), size
		return s, err
	}
	if size > MaxSmall {
		return hashLarge(r, size)
	}
	return hashSmall(r, size, f)
}

func hashSmall(r io.ReaderAt, size int64, f ObjectFormat) (Sum, error) {
	git, plain := ObjectHash(f, "blob", size), sha256.New()
	if err := copyTo(io.MultiWriter(git, plain), r, 0, size); err != nil {
		return Sum{}, err
	}
	s := Sum{ID: sumID(f.BlobAlgo(), git), Size: size}
	plain.Sum(s.SHA256[:0])
	return s, nil
}

func hashLarge(r io.ReaderAt, size int64) (Sum, error) {
	s := Sum{Size: size, Chunks: make([][32]byte, NumChunks(size))}
	buf := make([]byte, ChunkSize)
	for i := range s.Chunks {
		n := ChunkLen(size, i)
		if IsHole(r, int64(i)*ChunkSize, n) {
			s.Chunks[i] = ZeroChunk(n)
			continue
		}
		if err := ReadFull(r, buf[:n], int64(i)*ChunkSize); err != nil {
			return Sum{}, err
		}
		s.Chunks[i] = HashChunk(buf[:n])
	}
	s.ID = TreeRoot(size, s.Chunks)
	return s, nil
}

// Verify reports whether data are the bytes that id names: nil, or a *CorruptError that says what they are instead.
// Tree256 contents in one piece are verified too; a Loose id's data are the encoded ones.
func Verify(id ID, data []byte) error {
	var got ID
	switch {
	case id.Algo == Chunk256:
		got = ID{Algo: Chunk256, Digest: HashChunk(data)}
	case id.Algo.IsBlob():
		got = BlobID(data, id.Algo.Format())
	case id.Algo == Tree256:
		s, err := hashLarge(bytesReader(data), int64(len(data)))
		if err != nil {
			return err
		}
		got = s.ID
	case id.Algo.IsLoose():
		if body, ok := looseBodyOf(data); ok {
			got = BlobID(body, id.Algo.Format()).Loose()
		}
	default:
		return &CorruptError{ID: id, Why: "unknown algorithm"}
	}
	if got != id {
		return &CorruptError{ID: id, Got: got, Why: fmt.Sprintf("the bytes read are %s", got)}
	}
	return nil
}
