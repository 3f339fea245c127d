package integration

import (
	"path/filepath"
	"testing"

	"tine/integration/manifest"
)

// everyKind fills a directory with one of everything that a directory import keeps.
const everyKind = `
	mkdir -p d/e 'sp ace'; echo text >f; head -c 100000 /dev/urandom >random; : >empty
	chmod 4755 f; chmod 2770 d; chmod 1777 'sp ace'; chown 12:34 f d; chmod 0 empty
	ln f d/hard; ln f 'sp ace/hard2'; ln -s ../f d/soft; ln -s /nonexistent/absolute dangling; chown -h 5:6 dangling
	mkfifo -m 640 pipe; mknod null c 1 3; mknod block b 7 99
	truncate -s 20M sparse; printf end >>sparse; printf mid | dd of=sparse bs=1 seek=5000000 conv=notrunc 2>/dev/null
	printf n >"$(printf 'latin-\351')"; printf n >"$(printf 'new\nline')"; printf n >back\\slash; printf n >"$(printf 'a%.0s' $(seq 255))"
	setfattr -n user.short -v v f; setfattr -n user.empty d; setfattr -n trusted.t -v x d/e
	setfattr -n user.long -v "$(seq 1 700 | tr -d '\n')" random; setcap cap_net_raw+ep random 2>/dev/null || true
	setfacl -m u:1:rw,g:2:r random; setfacl -d -m u:3:rwx d
	touch -d '1999-12-31 23:59:59.999999999' random; touch -h -d '1960-01-01 00:00:00.5' dangling; touch -d '2100-01-01 00:00:01' empty
	touch -d '2003-04-05 06:07:08.123456789' d/e d 'sp ace' pipe null block`

// changesOfEveryKind alters it through a mount.
const changesOfEveryKind = `
	echo more >>f; mv d dd; rm block; printf X | dd of=sparse bs=1 seek=10000000 conv=notrunc 2>/dev/null
	setfattr -n user.new -v 1 empty; setfattr -x user.short f; chmod 600 random; chown 7:8 pipe; mkfifo pipe2
	ln -s f soft2; ln sparse hard3; mkdir -m 750 n; cp -a dd n/copy; touch -d '2005-05-05 05:05:05.5' f; fallocate -l 1M n/alloc
	truncate -s 3 random; rm "$(printf 'new\nline')"; setfacl -m u:9:x n; touch -h -d '1970-01-01 00:00:01' soft2; mknod zero c 1 5`

// TestExportEqualsWorkspace: what import dir takes, a mount shows, a seal keeps and an export gives back are equal in
// bytes, modes, owners, times to the nanosecond, links, extended attributes and ACLs.
func TestExportEqualsWorkspace(t *testing.T) {
	requireTools(t, "setfattr", "setfacl", "tar")
	l := newLab(t)
	src := filepath.Join(l.ext4("ext4"), "src")
	l.shell(l.dir, "mkdir '"+src+"'")
	l.shell(src, everyKind)
	i := l.importDir(src)
	want := l.manifest(src)
	fork := l.fork(i.Checkpoint)
	m := l.path("m")
	s := l.mount(fork, m)
	l.same("source", want, "workspace", l.manifest(m), manifest.Rules{})
	l.ok("checkpoint", "export", "--devices", i.Checkpoint, l.path("out1"))
	l.same("source", want, "export", l.manifest(l.path("out1")), manifest.Rules{})

	l.shell(m, changesOfEveryKind)
	changed := l.manifest(m)
	c := l.seal(fork).Checkpoint
	l.ok("checkpoint", "export", "--devices", c, l.path("out2"))
	l.same("workspace", changed, "export", l.manifest(l.path("out2")), manifest.Rules{})
	s.stop()

	// A fork of the sealed checkpoint shows the same, inode numbers included.
	s = l.mount(l.fork(c), m)
	l.same("workspace", changed, "fork of its seal", l.manifest(m), manifest.Rules{Inodes: true})
	s.stop()

	l.shell(l.mkdir("untar"), `"`+*binary+`" --store '`+l.store+`' checkpoint export `+c+` - | tar --xattrs --xattrs-include='*' -xpf - --same-owner`)
	l.same("workspace", changed, "extracted tar", l.manifest(l.path("untar")), manifest.Rules{NoDirMtime: true, NoRoot: true})

	// Without --devices an export makes no device.
	l.ok("checkpoint", "export", c, l.path("out3"))
	for p, e := range l.manifest(l.path("out3")) {
		if e.Rdev != 0 {
			t.Errorf("%s: a device was made without --devices", p)
		}
	}
	// Importing an export gives the same files again.
	if again := l.importDir(l.path("out2")); again.Tree != l.treeOf(c) {
		t.Errorf("tree %s after a round trip, was %s", again.Tree, l.treeOf(c))
	}
	r := l.run("checkpoint", "export", c, l.path("out2"))
	if r.status == 0 {
		t.Error("exported over a directory that has files")
	}
	l.same("workspace", changed, "export", l.manifest(l.path("out2")), manifest.Rules{})
}

// TestDeviceNodesAreInert: a device in a workspace is kept with its number and can't be opened, by root either.
func TestDeviceNodesAreInert(t *testing.T) {
	l := newLab(t)
	src := l.mkdir("src")
	l.shell(src, "mknod null c 1 3; mknod -m 666 zero c 1 5")
	m := l.path("m")
	s := l.mount(l.fork(l.importDir(src).Checkpoint), m)
	l.shell(m, `
		test "$(stat -c '%F %t %T' null)" = "character special file 1 3"
		! cat null 2>/dev/null || exit 1; ! echo x 2>/dev/null >zero || exit 1; mknod full c 1 7; ! cat full 2>/dev/null`)
	s.stop()
}
