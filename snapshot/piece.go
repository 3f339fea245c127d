package snapshot

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"sync"

	"tine/snapshot/content"
	"tine/snapshot/durable"
)

// pieceBlock is the unit in bytes of verifying again what was verified as a whole: reads are a FUSE request's 128 KiB
// mostly.
const pieceBlock = 64 << 10

// sumSet remembers the CRC32C of each block of pieces that were verified against their ids, so that reading a part of
// a large one doesn't hash all of it again. A wrong entry can only cause a failure, never let wrong bytes through
// unless both checks fail.
type sumSet struct {
	mu sync.Mutex
	m  map[content.ID][]uint32
}

// sumLimit entries of at most 512 bytes: 4 MiB.
const sumLimit = 8192

func (c *sumSet) get(id content.ID) []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m[id]
}

func (c *sumSet) put(id content.ID, sums []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[content.ID][]uint32{}
	}
	for old := range c.m { // any entry will do
		if len(c.m) < sumLimit {
			break
		}
		delete(c.m, old)
	}
	c.m[id] = sums
}

func (c *sumSet) drop(id content.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, id)
}

// piece is a range of a file that holds the bytes named by id: an object, or a chunk in a segment. Only the block that
// is read is read again once the whole was verified.
type piece struct {
	store *Store
	id    content.ID // GitSHA1, GitSHA256 or Chunk256
	file  durable.File
	off   int64
	size  int64
	where string // for errors
}

func (p *piece) corrupt(why string) error {
	return &content.CorruptError{ID: p.id, Why: p.where + ": " + why}
}

var blockBuffers = sync.Pool{New: func() any { b := make([]byte, pieceBlock); return &b }}

// verify hashes all of the piece and returns its blocks' checksums.
func (p *piece) verify() ([]uint32, error) {
	sums := make([]uint32, 0, (p.size+pieceBlock-1)/pieceBlock)
	var h hash.Hash
	if p.id.Algo == content.Chunk256 {
		h = sha256.New()
	} else {
		h = content.ObjectHash(p.id.Algo.Format(), "blob", p.size)
	}
	bp := blockBuffers.Get().(*[]byte)
	defer blockBuffers.Put(bp)
	for at := int64(0); at < p.size; at += pieceBlock {
		b := (*bp)[:min(pieceBlock, p.size-at)]
		if err := content.ReadFull(p.file, b, p.off+at); err != nil {
			return nil, p.unreadable(err)
		}
		h.Write(b)
		sums = append(sums, crc32.Checksum(b, crcTable))
	}
	got := content.ID{Algo: p.id.Algo}
	h.Sum(got.Digest[:0])
	if got != p.id {
		return nil, &content.CorruptError{ID: p.id, Got: got, Why: fmt.Sprintf("%s: the bytes are %s", p.where, got)}
	}
	p.store.sums.put(p.id, sums)
	return sums, nil
}

// blockSums are the checksums of data, which was verified.
func blockSums(data []byte) []uint32 {
	sums := make([]uint32, 0, (len(data)+pieceBlock-1)/pieceBlock)
	for len(data) > 0 {
		n := min(len(data), pieceBlock)
		sums = append(sums, crc32.Checksum(data[:n], crcTable))
		data = data[n:]
	}
	return sums
}

func (p *piece) unreadable(err error) error {
	if err == io.ErrUnexpectedEOF {
		return p.corrupt("it ends early")
	}
	return p.corrupt(err.Error())
}

// readAt fills buf from off; the range lies within the piece.
func (p *piece) readAt(buf []byte, off int64) error {
	sums := p.store.sums.get(p.id)
	fresh := false
	if sums == nil {
		var err error
		if sums, err = p.verify(); err != nil {
			return err
		}
		fresh = true
	}
	bp := blockBuffers.Get().(*[]byte)
	defer blockBuffers.Put(bp)
	for len(buf) > 0 {
		block := off / pieceBlock
		start := block * pieceBlock
		n := min(pieceBlock, p.size-start)
		b := *bp
		direct := off == start && int64(len(buf)) >= n
		if direct {
			b = buf
		}
		b = b[:n]
		if err := content.ReadFull(p.file, b, p.off+start); err != nil {
			return p.unreadable(err)
		}
		if crc32.Checksum(b, crcTable) != sums[block] {
			// The remembered checksum, or the bytes. The id decides.
			p.store.sums.drop(p.id)
			if fresh {
				return p.corrupt("it changes while it is read")
			}
			return p.readAt(buf, off)
		}
		k := n
		if !direct {
			k = int64(copy(buf, b[off-start:]))
		}
		buf, off = buf[k:], off+k
	}
	return nil
}

// clamp is what a ReadAt of p at off in a content of size bytes can give, and io.EOF if that is less than p.
func clamp(p []byte, off, size int64) ([]byte, error) {
	if off < 0 {
		return nil, fmt.Errorf("read at negative offset %d", off)
	}
	if off >= size {
		if len(p) == 0 {
			return p, nil
		}
		return nil, io.EOF
	}
	if int64(len(p)) > size-off {
		return p[:size-off], io.EOF
	}
	return p, nil
}
