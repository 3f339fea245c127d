package registry

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"tine/snapshot/durable"
)

// smallDisk mounts an ext4 of 8 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	img, at := filepath.Join(dir, "img"), filepath.Join(dir, "disk")
	if err := os.WriteFile(img, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(img, 8<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", img).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v %s", err, out)
	}
	os.Mkdir(at, 0o755)
	if out, err := exec.Command("mount", "-o", "loop", img, at).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v %s", err, out)
	}
	t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
	return at
}

// On a full disk `fork rm`, the way to get space back, failed with ENOSPC.
func TestForksAreRemovedOnAFullDisk(t *testing.T) {
	dir := smallDisk(t)
	r := Open(durable.OS, filepath.Join(dir, "forks.log"))
	var ids []string
	for range 40 {
		ids = append(ids, must(r.Create(Fork{Base: "c"}))(t)[0].ID)
	}
	fill, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer fill.Close()
	for n := 1 << 20; n > 0; n /= 2 {
		for err = nil; err == nil; {
			_, err = fill.Write(make([]byte, n))
		}
	}
	made := 0
	for err = nil; err == nil && made < 10000; made++ {
		_, err = r.Create(Fork{Base: "c"})
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("%d forks on a full disk: %v", made, err)
	}
	r = Open(durable.OS, r.path)
	for _, id := range ids {
		must(r.Update(id, func(f *Fork) error { f.State = Removing; return nil }))(t)
		if err := r.Remove(id); err != nil {
			t.Fatal(err)
		}
	}
	if l := must(Open(durable.OS, r.path).List())(t); len(l) != made-1 {
		t.Fatalf("%d forks are left of %d", len(l), made-1)
	}
}
