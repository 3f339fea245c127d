package fs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// go-fuse's conformance tests pass, but two that fail on ext4 too.
func TestO1_PosixConformance(t *testing.T) {
	dir, _, _ := workspace(t)
	for name, fn := range posixtest.All {
		if name == "FcntlFlockLocksFile" || name == "OpenSymlinkRace" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			sub := filepath.Join(dir, name)
			if err := os.Mkdir(sub, 0755); err != nil {
				t.Fatal(err)
			}
			fn(t, sub)
			if err := os.RemoveAll(sub); err != nil {
				t.Error(err)
			}
		})
	}
}
