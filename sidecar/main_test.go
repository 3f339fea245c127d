package sidecar

import (
	"os"
	"testing"

	"tine/sidecar/isolate"
)

func TestMain(m *testing.M) {
	isolate.MaybeInit()
	os.Exit(m.Run())
}

// rooted ends a test that mounts without root: a failure in CI, elsewhere a skip.
func rooted(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("needs root: it mounts file systems")
	}
	t.Skip("needs root: it mounts file systems")
}
