package export

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"

	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

// aclValue is a POSIX ACL as the kernel keeps it: version 2, then tag, permissions, id.
func aclValue(entries ...[3]uint32) []byte {
	b := []byte{2, 0, 0, 0}
	for _, e := range entries {
		b = append(b, byte(e[0]), 0, byte(e[1]), 0, byte(e[2]), byte(e[2]>>8), byte(e[2]>>16), byte(e[2]>>24))
	}
	return b
}

func TestExportKeepsACLs(t *testing.T) {
	needRoot(t)
	const none = 0xffffffff
	access := aclValue([3]uint32{1, 6, none}, [3]uint32{2, 6, 1}, [3]uint32{4, 4, none}, [3]uint32{8, 4, 2}, [3]uint32{16, 6, none}, [3]uint32{32, 4, none})
	def := aclValue([3]uint32{1, 7, none}, [3]uint32{2, 7, 3}, [3]uint32{4, 5, none}, [3]uint32{16, 7, none}, [3]uint32{32, 5, none})
	f := imagetest.Build(t,
		imagetest.File("f", "x", 0o664).With(func(n *image.Node) {
			n.Xattrs = []image.Xattr{{Name: "system.posix_acl_access", Value: access}, {Name: "user.x", Value: []byte("y")}}
		}),
		imagetest.Dir("d", 0o755).With(func(n *image.Node) { n.Xattrs = []image.Xattr{{Name: "system.posix_acl_default", Value: def}} }),
		imagetest.File("d/in", "made in a directory with a default ACL", 0o644),
	)
	want := describe(t, f, nothing)
	dir := t.TempDir()
	if err := ToDir(context.Background(), f, dir, Options{}); err != nil {
		t.Fatal(err)
	}
	same(t, describeDir(t, dir), want)
	var archive bytes.Buffer
	if err := ToTar(context.Background(), f, &archive, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--xattrs", "--xattrs-include=*", "--acls"}, {"--acls"}} {
		dir := t.TempDir()
		cmd := exec.Command("tar", append([]string{"-C", dir, "-xpf", "-"}, args...)...)
		cmd.Stdin = bytes.NewReader(archive.Bytes())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		got := describeDir(t, dir)
		if len(args) == 1 { // user.x isn't asked for
			for i := range want {
				want[i] = strings.Replace(want[i], " user.x=79", "", 1)
			}
		}
		same(t, got, want)
	}
}
