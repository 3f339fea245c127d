package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"tine/snapshot/content"
)

// Identity is what a checkpoint's id is computed from. It depends on the tree alone, not on how images are cut.
type Identity struct {
	Format       int // of the identity, 1
	ObjectFormat content.ObjectFormat
	EntriesRoot  [32]byte
	NodesRoot    [32]byte
}

// Canonical is the identity as canonical JSON (RFC 8785).
func (id Identity) Canonical() []byte {
	return fmt.Appendf(nil, `{"entries_root":"%x","format":%d,"nodes_root":"%x","object_format":"%s"}`,
		id.EntriesRoot, id.Format, id.NodesRoot, id.ObjectFormat)
}

// CheckpointID is the SHA-256 of the canonical identity, in lower-case hex (64 characters).
func (id Identity) CheckpointID() string {
	sum := id.sum()
	return hex.EncodeToString(sum[:])
}

func (id Identity) sum() [32]byte { return sha256.Sum256(id.Canonical()) }

// appendNodeValue appends what the identity covers of a node, apart from its number: not nlink and parent, which
// follow from the entries, and not where its content is stored.
func appendNodeValue(b []byte, n *Node) []byte {
	for _, v := range [...]uint32{n.Mode, n.UID, n.GID, n.Rdev} {
		b = le.AppendUint32(b, v)
	}
	b = le.AppendUint64(b, uint64(n.Size))
	for _, t := range [...]Time{n.Mtime, n.Ctime, n.Btime} {
		b = le.AppendUint64(b, uint64(t.Sec))
		b = le.AppendUint32(b, t.Nsec)
	}
	b = append(b, byte(n.Content.Algo))
	b = append(b, n.Content.Digest[:]...)
	b = append(b, byte(len(n.Gitlink)))
	b = append(b, n.Gitlink...)
	b = le.AppendUint32(b, uint32(len(n.Xattrs)))
	return appendXattrs(b, n.Xattrs)
}

// appendXattrs is also the encoding of a set in the xattr data section.
func appendXattrs(b []byte, set []Xattr) []byte {
	for _, x := range set {
		b = le.AppendUint16(b, uint16(len(x.Name)))
		b = append(b, x.Name...)
		b = le.AppendUint32(b, uint32(len(x.Value)))
		b = append(b, x.Value...)
	}
	return b
}

func appendEntryValue(b []byte, name []byte, ino uint64, typ uint8) []byte {
	b = le.AppendUint64(b, ino)
	b = append(b, typ)
	return append(b, name...)
}

// key places an element in its trie.
type key [16]byte

func nodeKey(ino uint64) (k key) {
	putBE(k[:], ino)
	return k
}

func entryKey(dir uint64, nameHash uint64) (k key) {
	putBE(k[:], dir)
	putBE(k[8:], nameHash)
	return k
}

// hashName is the first 8 bytes of the name's SHA-256, big endian.
func hashName(name []byte) uint64 {
	sum := sha256.Sum256(name)
	return be.Uint64(sum[:])
}
