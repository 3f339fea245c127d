package image

import (
	"fmt"
	"slices"

	"tine/snapshot/content"
)

// Kind says where a content's bytes come from. It is no part of the identity.
type Kind uint8

const (
	KindNone    Kind = 0
	KindStored  Kind = 1 // in the store's segments or objects
	KindGit     Kind = 2 // in a git repository, until it is first read
	KindDerived Kind = 3 // a loose object computed from the blob with the same digest
	KindChunks  Kind = 4 // a list of chunks in the store
	KindRemote  Kind = 5 // a range of a registry's pack; Aux holds pack and offset
)

// ContentRef is one content that a tree uses.
type ContentRef struct {
	ID   content.ID
	Kind Kind
	Size int64
	Aux  [2]uint64 // of KindRemote
}

// defaultKind is the kind of a content of which only the id is known.
func defaultKind(a content.Algo) Kind {
	switch a {
	case content.LooseSHA1, content.LooseSHA256:
		return KindDerived
	case content.Tree256:
		return KindChunks
	}
	return KindStored
}

func (r *ContentRef) append(b []byte) []byte {
	b = append(b, r.ID.Digest[:]...)
	b = append(b, byte(r.ID.Algo), byte(r.Kind), 0, 0, 0, 0, 0, 0)
	b = le.AppendUint64(b, uint64(r.Size))
	b = le.AppendUint64(b, r.Aux[0])
	return le.AppendUint64(b, r.Aux[1])
}

func decodeContentRef(b []byte) (r ContentRef) {
	copy(r.ID.Digest[:], b)
	r.ID.Algo, r.Kind = content.Algo(b[32]), Kind(b[33])
	r.Size = int64(le.Uint64(b[40:]))
	r.Aux = [2]uint64{le.Uint64(b[48:]), le.Uint64(b[56:])}
	return r
}

// tables are the sections that nodes point into, while an image is made; each value is in them once.
type tables struct {
	contents  []byte
	byContent map[uint64]uint32 // digest prefix (or the next free one) -> index
	gitlinks  []byte
	byGitlink map[string]uint32
	sets      []byte
	data      []byte
	bySet     map[string]uint32
	scratch   []byte
	err       error // the first contradiction
}

func newTables() tables {
	return tables{byContent: map[uint64]uint32{}, byGitlink: map[string]uint32{}, bySet: map[string]uint32{}}
}

// findContent returns the slot of id: its index, or the key under which it would be added. The map is keyed by 8
// bytes of the digest to be small; different digests that share them take the following keys.
func (t *tables) findContent(id *content.ID) (slot uint64, index uint32, ok bool) {
	slot = le.Uint64(id.Digest[:]) ^ uint64(id.Algo)<<61
	for {
		i, ok := t.byContent[slot]
		if !ok {
			return slot, 0, false
		}
		rec := t.contents[int(i)*contentSize:]
		if content.Algo(rec[32]) == id.Algo && string(rec[:32]) == string(id.Digest[:]) {
			return slot, i, true
		}
		slot++
	}
}

// content returns 1 + id's index, 0 for no content.
func (t *tables) content(id *content.ID, size int64) uint32 {
	if id.IsZero() {
		return 0
	}
	slot, i, ok := t.findContent(id)
	if !ok {
		i = uint32(len(t.contents) / contentSize)
		t.byContent[slot] = i
		t.contents = (&ContentRef{ID: *id, Kind: defaultKind(id.Algo), Size: size}).append(room(t.contents, contentSize))
	} else if was := le.Uint64(t.contents[int(i)*contentSize+40:]); was != uint64(size) && t.err == nil {
		t.err = fmt.Errorf("content %s has %d bytes in one node and %d in another", id, was, size)
	}
	return i + 1
}

// setKind records where a content that is in the table comes from.
func (t *tables) setKind(id content.ID, kind Kind, aux [2]uint64) bool {
	_, i, ok := t.findContent(&id)
	if ok {
		rec := t.contents[int(i)*contentSize:]
		rec[33] = byte(kind)
		le.PutUint64(rec[48:], aux[0])
		le.PutUint64(rec[56:], aux[1])
	}
	return ok
}

func (t *tables) gitlink(link []byte) uint32 {
	if len(link) == 0 {
		return 0
	}
	i, ok := t.byGitlink[string(link)]
	if !ok {
		i = uint32(len(t.gitlinks)/gitlinkSize) + 1
		t.byGitlink[string(link)] = i
		var rec [gitlinkSize]byte
		rec[0] = byte(len(link))
		copy(rec[8:], link)
		t.gitlinks = append(t.gitlinks, rec[:]...)
	}
	return i
}

func (t *tables) xattrs(set []Xattr) uint32 {
	if len(set) == 0 {
		return 0
	}
	t.scratch = appendXattrs(t.scratch[:0], set)
	i, ok := t.bySet[string(t.scratch)]
	if !ok {
		i = uint32(len(t.sets)/xattrSetSize) + 1
		t.bySet[string(t.scratch)] = i
		t.sets = le.AppendUint64(t.sets, uint64(len(t.data)))
		t.sets = le.AppendUint32(t.sets, uint32(len(t.scratch)))
		t.sets = le.AppendUint32(t.sets, uint32(len(set)))
		t.data = append(t.data, t.scratch...)
	}
	return i
}

func (t *tables) contentRec(i uint32) []byte { return t.contents[int(i)*contentSize:][:contentSize] }
func (t *tables) gitlinkRec(i uint32) []byte { return t.gitlinks[int(i)*gitlinkSize:][:gitlinkSize] }

func (t *tables) xattrSet(i uint32) (uint32, []byte) {
	rec := t.sets[int(i)*xattrSetSize:]
	off := le.Uint64(rec)
	return le.Uint32(rec[12:]), t.data[off : off+uint64(le.Uint32(rec[8:]))]
}

// record makes a node's record, apart from nlink, parent, dir and name.
func (t *tables) record(b []byte, n *Node) {
	encodeNode(b, n, t.content(&n.Content, n.Size), t.gitlink(n.Gitlink), t.xattrs(n.Xattrs))
}

// room returns b with space for n more; it doubles what append would grow by a quarter, which for large tables means
// copying them five times.
func room[T any](b []T, n int) []T {
	if cap(b)-len(b) >= n {
		return b
	}
	return slices.Grow(b, max(n, len(b)))
}
