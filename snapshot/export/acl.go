package export

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// aclText is a POSIX ACL in the text form of tar's SCHILY.acl records, with numbers for names; "" if value is none. Tools that
// unpack ACLs (GNU tar --acls) look for this record, others for the attribute itself, so that an archive has both.
func aclText(value []byte) string {
	if len(value) < 4 || len(value)%8 != 4 || binary.LittleEndian.Uint32(value) != 2 {
		return ""
	}
	var out []string
	for e := value[4:]; len(e) > 0; e = e[8:] {
		tag, perm, id := binary.LittleEndian.Uint16(e), binary.LittleEndian.Uint16(e[2:]), binary.LittleEndian.Uint32(e[4:])
		rwx := []byte("---")
		for i, c := range []byte("rwx") {
			if perm&(4>>i) != 0 {
				rwx[i] = c
			}
		}
		switch tag {
		case 1:
			out = append(out, fmt.Sprintf("user::%s", rwx))
		case 2:
			out = append(out, fmt.Sprintf("user:%d:%s", id, rwx))
		case 4:
			out = append(out, fmt.Sprintf("group::%s", rwx))
		case 8:
			out = append(out, fmt.Sprintf("group:%d:%s", id, rwx))
		case 16:
			out = append(out, fmt.Sprintf("mask::%s", rwx))
		case 32:
			out = append(out, fmt.Sprintf("other::%s", rwx))
		default:
			return ""
		}
	}
	return strings.Join(out, ",")
}

// aclRecords are the tar records of the ACL attributes.
var aclRecords = map[string]string{
	"system.posix_acl_access":  "SCHILY.acl.access",
	"system.posix_acl_default": "SCHILY.acl.default",
}
