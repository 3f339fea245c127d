package isolate

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

const plainHost = `27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
22 27 0:21 / /proc rw - proc proc rw
24 27 0:6 / /dev rw - devtmpfs devtmpfs rw
`

func mountsOf(t *testing.T, lines string) []mountEntry {
	t.Helper()
	m, err := parseMounts([]byte(plainHost + lines))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestS13_Twins: what shows a hidden directory is covered wherever a mount shows it.
func TestS13_Twins(t *testing.T) {
	for _, c := range []struct {
		name, mounts string
		hide         []string
		cover        []string
	}{
		{"plain", "", []string{"/srv/repo"}, []string{"/srv/repo"}},
		{"bind of it", "30 27 254:0 /srv/repo /mnt/a rw - ext4 /dev/vda rw\n", []string{"/srv/repo"}, []string{"/mnt/a", "/srv/repo"}},
		{"bind of a part", "30 27 254:0 /srv/repo/.git /mnt/a rw - ext4 /dev/vda rw\n", []string{"/srv/repo"}, []string{"/mnt/a", "/srv/repo"}},
		{"bind of what is around", "30 27 254:0 /srv /mnt/a rw - ext4 /dev/vda rw\n", []string{"/srv/repo"}, []string{"/mnt/a/repo", "/srv/repo"}},
		{"bind of a name that begins alike", "30 27 254:0 /srv/repository /mnt/a rw - ext4 /dev/vda rw\n", []string{"/srv/repo"}, []string{"/srv/repo"}},
		{"the whole disk twice", "30 27 254:0 / /mnt/disk rw - ext4 /dev/vda rw\n", []string{"/srv/repo"}, []string{"/mnt/disk/srv/repo", "/srv/repo"}},
		{"hidden by its twin's name", "30 27 254:0 /srv/repo /mnt/a rw - ext4 /dev/vda rw\n", []string{"/mnt/a"}, []string{"/mnt/a", "/srv/repo"}},
		{"other disk, same path", "30 27 254:1 /srv/repo /mnt/a rw - ext4 /dev/vdb rw\n", []string{"/srv/repo"}, []string{"/srv/repo"}},
		{"on its own disk, twice", "30 27 254:1 / /data rw - ext4 /dev/vdb rw\n31 27 254:1 / /data2 rw - ext4 /dev/vdb rw\n", []string{"/data/repo"}, []string{"/data/repo", "/data2/repo"}},
		{"a disk beneath it, twice", "30 27 254:1 / /srv/repo/big rw - ext4 /dev/vdb rw\n31 27 254:1 /sub /mnt/b rw - ext4 /dev/vdb rw\n", []string{"/srv/repo"}, []string{"/mnt/b", "/srv/repo", "/srv/repo/big"}},
		{"a system directory bound beneath it", "30 27 254:0 /usr /srv/repo/usr rw - ext4 /dev/vda rw\n", []string{"/srv/repo"}, []string{"/srv/repo", "/srv/repo/usr"}},
		{"btrfs subvolumes", "30 27 0:40 /@data /data rw - btrfs /dev/vdc rw\n31 27 0:40 / /btrfs rw - btrfs /dev/vdc rw\n", []string{"/data/repo"}, []string{"/btrfs/@data/repo", "/data/repo"}},
		{"escaped names", `30 27 254:0 /srv/my\040repo /mnt/a\011b rw - ext4 /dev/vda rw` + "\n", []string{"/srv/my repo"}, []string{"/mnt/a\tb", "/srv/my repo"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := planner{mounts: mountsOf(t, c.mounts), homes: []string{"/root"}}.makePlan(c.hide, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(p.Cover, c.cover) {
				t.Errorf("covers %q, want %q", p.Cover, c.cover)
			}
		})
	}
}

// TestS13_Essential: a source that covers /, /usr or $HOME is refused.
func TestS13_Essential(t *testing.T) {
	whole := "30 27 254:0 / /mnt/disk rw - ext4 /dev/vda rw\n"
	for _, c := range []struct{ hide, mounts string }{
		{"/", ""}, {"/usr", ""}, {"/root", ""}, {"/home", ""}, {"/home/user", ""},
		{"/mnt/disk", whole}, {"/mnt/disk/usr", whole}, {"/mnt/disk/home", whole},
	} {
		p := planner{mounts: mountsOf(t, c.mounts), homes: []string{"/home/user"}}
		if c.hide == "/root" {
			p.homes = []string{"/root"}
		}
		_, err := p.makePlan([]string{c.hide}, nil)
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Rule != "S13" {
			t.Errorf("%s: %v", c.hide, err)
		}
	}
	if _, err := (planner{mounts: mountsOf(t, ""), homes: []string{"/home/user"}}).makePlan([]string{"/usr/src/repo", "/home/user/repo", "/home/other", "/root"}, nil); err != nil {
		t.Error(err)
	}
}

func TestS13_LeftOut(t *testing.T) {
	p, err := planner{mounts: mountsOf(t, `40 27 0:50 / /mnt/fork rw - fuse.tine tine rw
41 27 0:51 / /mnt/ssh rw - fuse.sshfs h: rw
42 27 8:1 / /mnt/ntfs rw - fuseblk /dev/sda1 rw
`)}.makePlan(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/dev", "/mnt/fork", "/mnt/ssh", "/proc"}; !reflect.DeepEqual(p.Absent, want) {
		t.Errorf("absent %q, want %q", p.Absent, want)
	}
}

func TestParseMountsRefusesGarbage(t *testing.T) {
	for _, s := range []string{"x", "1 2 3:4 / / rw", "a b c / / rw - ext4 x rw", "1 2 3:4 / - ext4 x"} {
		if _, err := parseMounts([]byte(s + "\n")); err == nil {
			t.Errorf("%q: no error", s)
		}
	}
}

func TestParseSockets(t *testing.T) {
	got := parseSockets([]byte(`Num       RefCount Protocol Flags    Type St Inode Path
0000000016790fa1: 00000003 00000000 00000000 0001 03  1587
00000000491cf9e9: 00000002 00000000 00010000 0001 01 31650 /run/a socket.sock
0000000003cf84ea: 00000003 00000000 00000000 0001 03  1588 @abstract
00000000491cf9e9: 00000002 00000000 00010000 0001 01    12 rel.sock
`))
	if want := map[string]string{"31650": "/run/a socket.sock", "12": "rel.sock"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add(plainHost)
	f.Add(`30 27 254:0 /srv/my\040repo /mnt/a\011b rw shared:1 - ext4 /dev/vda rw` + "\n")
	f.Fuzz(func(t *testing.T, s string) {
		mounts, err := parseMounts([]byte(s))
		if err != nil {
			return
		}
		for _, m := range mounts {
			if strings.Contains(m.Dev, " ") {
				t.Errorf("device %q", m.Dev)
			}
		}
		planner{mounts: mounts}.makePlan([]string{"/srv/repo"}, []string{"/srv/s"})
	})
}
