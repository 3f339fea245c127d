package overlay

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"tine/snapshot/image"
)

// The kernel's form of an ACL in an xattr: version 2 (u32), then entries of tag u16, permissions u16, id u32.
const (
	aclAccess    = "system.posix_acl_access"
	aclDefault   = "system.posix_acl_default"
	aclHeader    = 4
	aclEntrySize = 8

	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclGroup    = 0x08
	aclMask     = 0x10
	aclOther    = 0x20
)

type aclEntry struct {
	tag, perm uint16
	id        uint32
}

// parseACL checks an ACL as the kernel does: known tags in order, ids unique, a mask where one is needed.
func parseACL(v []byte) ([]aclEntry, error) {
	if len(v) < aclHeader || binary.LittleEndian.Uint32(v) != 2 || (len(v)-aclHeader)%aclEntrySize != 0 {
		return nil, unix.EINVAL
	}
	var list []aclEntry
	var seen, last uint16
	named := false
	for e := v[aclHeader:]; len(e) > 0; e = e[aclEntrySize:] {
		a := aclEntry{binary.LittleEndian.Uint16(e), binary.LittleEndian.Uint16(e[2:]), binary.LittleEndian.Uint32(e[4:])}
		if a.perm > 7 || a.tag < last {
			return nil, unix.EINVAL
		}
		switch a.tag {
		case aclUserObj, aclGroupObj, aclMask, aclOther:
			if seen&a.tag != 0 {
				return nil, unix.EINVAL
			}
		case aclUser, aclGroup:
			named = true
		default:
			return nil, unix.EINVAL
		}
		seen |= a.tag
		last = a.tag
		list = append(list, a)
	}
	if len(list) == 0 {
		return nil, nil
	}
	if seen&(aclUserObj|aclGroupObj|aclOther) != aclUserObj|aclGroupObj|aclOther || named && seen&aclMask == 0 {
		return nil, unix.EINVAL
	}
	return list, nil
}

func encodeACL(list []aclEntry) []byte {
	v := binary.LittleEndian.AppendUint32(nil, 2)
	for _, a := range list {
		v = binary.LittleEndian.AppendUint16(v, a.tag)
		v = binary.LittleEndian.AppendUint16(v, a.perm)
		v = binary.LittleEndian.AppendUint32(v, a.id)
	}
	return v
}

// groupClass is the entry that the mode's group bits show: the mask, or the owning group without one.
func groupClass(list []aclEntry) *aclEntry {
	var g *aclEntry
	for i := range list {
		switch list[i].tag {
		case aclGroupObj:
			g = &list[i]
		case aclMask:
			return &list[i]
		}
	}
	return g
}

// aclMode is the permission bits that an ACL stands for, and whether they say all that it says.
func aclMode(list []aclEntry) (perm uint32, equivalent bool) {
	equivalent = true
	for _, a := range list {
		switch a.tag {
		case aclUserObj:
			perm |= uint32(a.perm) << 6
		case aclOther:
			perm |= uint32(a.perm)
		case aclUser, aclGroup, aclMask:
			equivalent = false
		}
	}
	return perm | uint32(groupClass(list).perm)<<3, equivalent
}

// chmodACL makes an ACL show mode's permission bits.
func chmodACL(list []aclEntry, mode uint32) {
	for i := range list {
		switch list[i].tag {
		case aclUserObj:
			list[i].perm = uint16(mode >> 6 & 7)
		case aclOther:
			list[i].perm = uint16(mode & 7)
		}
	}
	groupClass(list).perm = uint16(mode >> 3 & 7)
}

func xattrValue(list []image.Xattr, name string) ([]byte, bool) {
	if i, ok := findXattr(list, name); ok {
		return list[i].Value, true
	}
	return nil, false
}

// inheritACL gives the ACLs and the mode of a new inode: from the directory's default ACL, which makes the umask
// count for nothing, or by the umask.
func inheritACL(dir *node, mode, umask uint32) ([]image.Xattr, uint32) {
	if mode&unix.S_IFMT == unix.S_IFLNK {
		return nil, mode
	}
	v, ok := xattrValue(dir.xattrs, aclDefault)
	var list []aclEntry
	if ok {
		list, _ = parseACL(v)
	}
	if len(list) == 0 {
		return nil, mode &^ (umask & 0777)
	}
	acl := slices.Clone(list)
	for i := range acl {
		switch acl[i].tag {
		case aclUserObj:
			acl[i].perm &= uint16(mode >> 6 & 7)
		case aclOther:
			acl[i].perm &= uint16(mode & 7)
		}
	}
	groupClass(acl).perm &= uint16(mode >> 3 & 7)
	perm, equivalent := aclMode(acl)
	mode = mode&^0777 | perm
	var out []image.Xattr
	if !equivalent {
		out = append(out, image.Xattr{Name: aclAccess, Value: encodeACL(acl)})
	}
	if mode&unix.S_IFMT == unix.S_IFDIR {
		out = append(out, image.Xattr{Name: aclDefault, Value: v})
	}
	return out, mode
}
