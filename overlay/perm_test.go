package overlay

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"tine/snapshot/image"
)

var user = Caller{UID: 1000, GID: 1000, Umask: 022}

func acl(entries ...uint32) []byte {
	v := binary.LittleEndian.AppendUint32(nil, 2)
	for i := 0; i < len(entries); i += 3 {
		v = binary.LittleEndian.AppendUint16(v, uint16(entries[i]))
		v = binary.LittleEndian.AppendUint16(v, uint16(entries[i+1]))
		v = binary.LittleEndian.AppendUint32(v, entries[i+2])
	}
	return v
}

const noID = 0xffffffff

func (e *env) mode(ino uint64) uint32 {
	e.t.Helper()
	a, err := e.f.Getattr(ino)
	e.must(err)
	return a.Mode & 07777
}

func (e *env) wantMode(ino uint64, want uint32) {
	e.t.Helper()
	if got := e.mode(ino); got != want {
		e.t.Fatalf("mode %o, want %o", got, want)
	}
}

func TestUmaskAndSetgidDirectories(t *testing.T) {
	e := newEnv(t, sampleTree())
	a, err := e.f.Create(user, 1, "f", 0666, true)
	e.must(err)
	if a.Mode != unix.S_IFREG|0644 || a.UID != 1000 || a.GID != 1000 {
		t.Fatalf("%+v", a)
	}
	d, err := e.f.Mkdir(root, 1, "shared", 0775)
	e.must(err)
	_, err = e.f.Setattr(root, d.Ino, SetAttr{Valid: SetMode | SetGID, Mode: 02775, GID: 50})
	e.must(err)
	f, err := e.f.Create(user, d.Ino, "f", 0666, true)
	e.must(err)
	sub, err := e.f.Mkdir(user, d.Ino, "sub", 0777)
	e.must(err)
	if f.GID != 50 || f.Mode&07777 != 0644 || sub.GID != 50 || sub.Mode&07777 != 02755 {
		t.Fatalf("file %+v sub %+v", f, sub)
	}
}

// TestSuidIsClearedByEveryChange covers write, truncate, fallocate, copy, chown; capabilities go too.
func TestSuidIsClearedByEveryChange(t *testing.T) {
	e := newEnv(t, sampleTree())
	changes := map[string]func(c Caller, ino uint64) error{
		"write": func(c Caller, ino uint64) error {
			_, err := e.f.Write(c, ino, []byte("x"), 0, c.UID != 0)
			return err
		},
		"large write": func(c Caller, ino uint64) error {
			_, err := e.f.Write(c, ino, make([]byte, 100_000), 0, c.UID != 0)
			return err
		},
		"truncate": func(c Caller, ino uint64) error {
			_, err := e.f.Setattr(c, ino, SetAttr{Valid: SetSize, Size: 1, KillSuidgid: c.UID != 0})
			return err
		},
		"fallocate": func(c Caller, ino uint64) error { return e.f.Fallocate(c, ino, 0, 0, 10) },
		"punch": func(c Caller, ino uint64) error {
			return e.f.Fallocate(c, ino, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 10)
		},
		"copy": func(c Caller, ino uint64) error {
			_, err := e.f.CopyRange(c, e.ino("big"), 0, ino, 0, 100)
			return err
		},
	}
	for name, change := range changes {
		for _, c := range []Caller{root, user} {
			ino := e.put(1, name+string(rune('0'+c.UID%7)), "data")
			_, err := e.f.Setattr(root, ino, SetAttr{Valid: SetMode, Mode: 06777})
			e.must(err)
			e.must(e.f.Setxattr(root, ino, xattrCaps, []byte("cap"), 0))
			e.must(change(c, ino))
			want := uint32(0777)
			if c.UID == 0 {
				want = 06777
			}
			if got := e.mode(ino); got != want {
				t.Errorf("%s by %d: mode %o, want %o", name, c.UID, got, want)
			}
			if _, err := e.f.Getxattr(ino, xattrCaps); Errno(err) != unix.ENODATA {
				t.Errorf("%s by %d: capability stayed: %v", name, c.UID, err)
			}
		}
	}
	// chown clears for everybody; sgid without group execute stays for a member and for root.
	for _, valid := range []uint32{SetUID, SetGID, 0} {
		ino := e.put(1, "chown"+string(rune('0'+valid)), "")
		_, err := e.f.Setattr(root, ino, SetAttr{Valid: SetMode, Mode: 06755})
		e.must(err)
		_, err = e.f.Setattr(root, ino, SetAttr{Valid: valid, UID: 5, GID: 6})
		e.must(err)
		e.wantMode(ino, 0755)
		_, err = e.f.Setattr(root, ino, SetAttr{Valid: SetMode, Mode: 06745})
		e.must(err)
		_, err = e.f.Setattr(root, ino, SetAttr{Valid: valid, UID: 5, GID: 6})
		e.must(err)
		e.wantMode(ino, 02745)
	}
	d := e.ino("dir")
	_, err := e.f.Setattr(root, d, SetAttr{Valid: SetMode, Mode: 06755})
	e.must(err)
	_, err = e.f.Setattr(root, d, SetAttr{Valid: SetUID, UID: 5})
	e.must(err)
	e.wantMode(d, 06755)
}

func TestACLAndModeKeepInStep(t *testing.T) {
	e := newEnv(t, sampleTree())
	ino := e.put(1, "f", "")
	_, err := e.f.Getxattr(ino, aclAccess)
	e.wantErr(err, unix.ENODATA)
	full := acl(aclUserObj, 6, noID, aclUser, 7, 1000, aclGroupObj, 4, noID, aclMask, 5, noID, aclOther, 0, noID)
	e.must(e.f.Setxattr(root, ino, aclAccess, full, 0))
	e.wantMode(ino, 0650)
	_, err = e.f.Setattr(root, ino, SetAttr{Valid: SetMode, Mode: 0712})
	e.must(err)
	got, err := e.f.Getxattr(ino, aclAccess)
	e.must(err)
	if want := acl(aclUserObj, 7, noID, aclUser, 7, 1000, aclGroupObj, 4, noID, aclMask, 1, noID, aclOther, 2, noID); string(got) != string(want) {
		t.Fatalf("ACL after chmod %x, want %x", got, want)
	}
	// One that says no more than a mode is the mode.
	e.must(e.f.Setxattr(root, ino, aclAccess, acl(aclUserObj, 6, noID, aclGroupObj, 4, noID, aclOther, 4, noID), 0))
	e.wantMode(ino, 0644)
	_, err = e.f.Getxattr(ino, aclAccess)
	e.wantErr(err, unix.ENODATA)
	e.must(e.f.Removexattr(root, ino, aclAccess))
	for _, bad := range [][]byte{nil, {2, 0, 0}, acl(aclUserObj, 6, noID), acl(aclOther, 0, noID, aclUserObj, 6, noID, aclGroupObj, 4, noID),
		acl(aclUserObj, 6, noID, aclUser, 7, 1, aclGroupObj, 4, noID, aclOther, 0, noID)} {
		e.wantErr(e.f.Setxattr(root, ino, aclAccess, bad, 0), unix.EINVAL)
	}
	e.wantErr(e.f.Setxattr(root, ino, aclDefault, full, 0), unix.EACCES)
	// sgid goes when somebody outside the group sets an ACL.
	_, err = e.f.Setattr(root, ino, SetAttr{Valid: SetMode | SetUID | SetGID, Mode: 02644, UID: 1000, GID: 7})
	e.must(err)
	e.must(e.f.Setxattr(user, ino, aclAccess, full, 0))
	e.wantMode(ino, 0650)
	e.reopen()
	e.wantMode(ino, 0650)
}

func TestDefaultACLReplacesTheUmask(t *testing.T) {
	e := newEnv(t, sampleTree())
	d, err := e.f.Mkdir(root, 1, "d", 0755)
	e.must(err)
	def := acl(aclUserObj, 7, noID, aclUser, 7, 1000, aclGroupObj, 5, noID, aclMask, 7, noID, aclOther, 4, noID)
	e.must(e.f.Setxattr(root, d.Ino, aclDefault, def, 0))
	e.wantMode(d.Ino, 0755)
	f, err := e.f.Create(Caller{Umask: 077}, d.Ino, "f", 0664, true)
	e.must(err)
	e.wantMode(f.Ino, 0664)
	got, err := e.f.Getxattr(f.Ino, aclAccess)
	e.must(err)
	if want := acl(aclUserObj, 6, noID, aclUser, 7, 1000, aclGroupObj, 5, noID, aclMask, 6, noID, aclOther, 4, noID); string(got) != string(want) {
		t.Fatalf("inherited %x, want %x", got, want)
	}
	if _, err := e.f.Getxattr(f.Ino, aclDefault); Errno(err) != unix.ENODATA {
		t.Fatal("a file got a default ACL")
	}
	sub, err := e.f.Mkdir(Caller{Umask: 077}, d.Ino, "sub", 0777)
	e.must(err)
	got, err = e.f.Getxattr(sub.Ino, aclDefault)
	e.must(err)
	if string(got) != string(def) || e.mode(sub.Ino) != 0774 {
		t.Fatalf("directory: default %x, mode %o", got, e.mode(sub.Ino))
	}
	s, err := e.f.Symlink(Caller{Umask: 077}, d.Ino, "s", "t")
	e.must(err)
	if s.Mode != unix.S_IFLNK|0777 {
		t.Fatalf("symlink mode %o", s.Mode)
	}
}

func TestL3_OwnerMapShowsAndIsUndoneByViews(t *testing.T) {
	e := newEnv(t, sampleTree())
	e.close()
	e.cfg.Owners = OwnerMap{UID: 1000, GID: 1000}
	e.open()
	a, err := e.f.Getattr(e.ino("a"))
	e.must(err)
	if a.UID != 1000 || a.GID != 1000 {
		t.Fatalf("base shows %d:%d", a.UID, a.GID)
	}
	mine, err := e.f.Create(user, 1, "mine", 0644, true)
	e.must(err)
	roots, err := e.f.Create(root, 1, "roots", 0644, true)
	e.must(err)
	other, err := e.f.Setattr(root, e.ino("big"), SetAttr{Valid: SetUID | SetGID, UID: 33, GID: 0})
	e.must(err)
	if mine.UID != 1000 || roots.UID != 0 || other.UID != 33 || other.GID != 0 {
		t.Fatalf("%d %d %d:%d", mine.UID, roots.UID, other.UID, other.GID)
	}
	value := acl(aclUserObj, 6, noID, aclUser, 7, 0, aclGroupObj, 4, noID, aclGroup, 4, 1000, aclMask, 7, noID, aclOther, 0, noID)
	e.must(e.f.Setxattr(root, mine.Ino, aclAccess, value, 0))
	if got, _ := e.f.Getxattr(mine.Ino, aclAccess); string(got) != string(value) {
		t.Fatalf("ACL reads back as %x", got)
	}
	v, err := e.f.View()
	e.must(err)
	defer v.Close()
	stored := func(ino uint64) image.Node {
		n, err := v.Node(ino)
		e.must(err)
		return n
	}
	if m, r, o := stored(mine.Ino), stored(roots.Ino), stored(other.Ino); m.UID != 0 || m.GID != 0 || r.UID != 1000 || o.UID != 33 || o.GID != 1000 {
		t.Fatalf("stored %+v %+v %+v", m, r, o)
	}
	swapped := acl(aclUserObj, 6, noID, aclUser, 7, 1000, aclGroupObj, 4, noID, aclGroup, 4, 0, aclMask, 7, noID, aclOther, 0, noID)
	if got := stored(mine.Ino).Xattrs[0].Value; string(got) != string(swapped) {
		t.Fatalf("stored ACL %x", got)
	}
}

func TestTrustedXattrsAreRootsAlone(t *testing.T) {
	e := newEnv(t, sampleTree())
	ino := e.put(1, "f", "")
	e.must(e.f.Setxattr(root, ino, "trusted.t", []byte("1"), 0))
	e.must(e.f.Setxattr(root, ino, "user.u", nil, unix.XATTR_CREATE))
	e.wantErr(e.f.Setxattr(root, ino, "user.u", nil, unix.XATTR_CREATE), unix.EEXIST)
	e.wantErr(e.f.Setxattr(root, ino, "user.v", nil, unix.XATTR_REPLACE), unix.ENODATA)
	e.wantErr(e.f.Setxattr(root, ino, "user.", nil, 0), unix.EINVAL)
	e.wantErr(e.f.Setxattr(root, e.ino("link"), "user.u", nil, 0), unix.EPERM)
	e.wantErr(e.f.Setxattr(root, ino, "user.big", make([]byte, 65537), 0), unix.E2BIG)
	if l, _ := e.f.Listxattr(root, ino); len(l) != 2 {
		t.Fatalf("root lists %v", l)
	}
	if l, _ := e.f.Listxattr(user, ino); len(l) != 1 {
		t.Fatalf("user lists %v", l)
	}
}
