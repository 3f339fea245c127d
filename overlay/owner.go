package overlay

import (
	"encoding/binary"
	"slices"
)

// OwnerMap changes what owners a fork shows: the stored uid 0 is shown as UID and the stored UID as 0, and likewise
// for gids, so that a checkpoint imported as 0:0 belongs to the run's user. It is a swap, so nothing is lost: a seal
// stores what was stored. The zero value changes nothing.
type OwnerMap struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

func swapID(id, with uint32) uint32 {
	switch id {
	case 0:
		return with
	case with:
		return 0
	}
	return id
}

func (m OwnerMap) shownUID(id uint32) uint32  { return swapID(id, m.UID) }
func (m OwnerMap) shownGID(id uint32) uint32  { return swapID(id, m.GID) }
func (m OwnerMap) storedUID(id uint32) uint32 { return swapID(id, m.UID) }
func (m OwnerMap) storedGID(id uint32) uint32 { return swapID(id, m.GID) }

// acl swaps the ids in an ACL's xattr value; the value given is left alone.
func (m OwnerMap) acl(v []byte) []byte {
	if m == (OwnerMap{}) || len(v) < aclHeader || (len(v)-aclHeader)%aclEntrySize != 0 {
		return v
	}
	v = slices.Clone(v)
	for e := v[aclHeader:]; len(e) > 0; e = e[aclEntrySize:] {
		id := binary.LittleEndian.Uint32(e[4:])
		switch binary.LittleEndian.Uint16(e) {
		case aclUser:
			binary.LittleEndian.PutUint32(e[4:], m.shownUID(id))
		case aclGroup:
			binary.LittleEndian.PutUint32(e[4:], m.shownGID(id))
		}
	}
	return v
}
