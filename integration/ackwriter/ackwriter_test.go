package ackwriter

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair makes two equal directories, the "workspace" and its mirror.
func pair(t *testing.T) (workspace string, m *Mirror) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("changes owners: needs root")
	}
	top := t.TempDir()
	workspace = filepath.Join(top, "workspace")
	if err := os.MkdirAll(filepath.Join(workspace, "d/e"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"a", "b", "d/c", "d/e/f"} {
		if err := os.WriteFile(filepath.Join(workspace, n), Bytes(uint64(len(n)), 30000), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Unix(1_200_000_000, 12345)
	if err := os.Chtimes(filepath.Join(workspace, "b"), old, old); err != nil {
		t.Fatal(err)
	}
	mirror := filepath.Join(top, "mirror")
	if out, err := exec.Command("cp", "-a", workspace, mirror).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	return workspace, &Mirror{Dir: mirror, Since: time.Now().Add(-time.Minute).UnixNano()}
}

func TestMirrorFollowsAWriter(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		workspace, m := pair(t)
		var log bytes.Buffer
		if err := Write(workspace, seed, 500, &log); err != nil {
			t.Fatal(err)
		}
		if err := m.Follow(&log); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if m.Acked != 500 {
			t.Fatalf("seed %d: %d of 500 operations acknowledged", seed, m.Acked)
		}
		diff, err := m.Compare(workspace)
		if err != nil || diff != nil {
			t.Fatalf("seed %d: %v: %s", seed, err, strings.Join(diff, "\n"))
		}
	}
}

// TestLostOperationIsFound drops the effect of an acknowledged operation of each kind that leaves a trace.
func TestLostOperationIsFound(t *testing.T) {
	for _, op := range []Op{
		{Kind: "create", Path: "new", Mode: 0o644}, {Kind: "write", Path: "a", Off: 5, Len: 9, Seed: 1},
		{Kind: "append", Path: "a", Len: 9}, {Kind: "rename", Path: "a", To: "a2"}, {Kind: "unlink", Path: "a"},
		{Kind: "mkdir", Path: "nd", Mode: 0o755}, {Kind: "symlink", Path: "s", To: "a"}, {Kind: "link", Path: "a", To: "a3"},
		{Kind: "chmod", Path: "a", Mode: 0o600}, {Kind: "truncate", Path: "a", Len: 7}, {Kind: "mmap", Path: "a", Off: 1, Len: 2},
		{Kind: "utimes", Path: "a", Seed: 1e18}, {Kind: "setxattr", Path: "a", Name: "user.k", Len: 3},
		{Kind: "fallocate", Path: "a", Off: 10, Len: 20, Mode: unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE},
	} {
		t.Run(op.Kind, func(t *testing.T) {
			workspace, m := pair(t)
			var log bytes.Buffer
			for _, l := range []Line{{Begin: &op}, {Done: true}} {
				if err := json.NewEncoder(&log).Encode(l); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.Follow(&log); err != nil {
				t.Fatal(err)
			}
			diff, err := m.Compare(workspace)
			if err != nil {
				t.Fatal(err)
			}
			if diff == nil {
				t.Fatalf("%+v was lost and nobody noticed", op)
			}
		})
	}
}

// TestOperationUnderWay: what had not returned may be there, wholly, in part (data only), or not at all.
func TestOperationUnderWay(t *testing.T) {
	op := Op{Kind: "write", Path: "a", Off: 100, Len: 5000, Seed: 42}
	part := op
	part.Len = 3000
	foreign := op
	foreign.Seed = 43
	for name, c := range map[string]struct {
		done *Op
		ok   bool
	}{"nothing": {nil, true}, "all": {&op, true}, "a part": {&part, true}, "something else": {&foreign, false}} {
		t.Run(name, func(t *testing.T) {
			workspace, m := pair(t)
			var log bytes.Buffer
			for _, l := range []Line{{Begin: &op}, {Dead: true}} {
				if err := json.NewEncoder(&log).Encode(l); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.Follow(&log); err != nil {
				t.Fatal(err)
			}
			if c.done != nil {
				fd, err := unix.Open(workspace, unix.O_PATH, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(fd)
				if err := Apply(fd, *c.done); err != nil {
					t.Fatal(err)
				}
			}
			diff, err := m.Compare(workspace)
			if err != nil {
				t.Fatal(err)
			}
			if (diff == nil) != c.ok {
				t.Fatalf("differences: %q", diff)
			}
		})
	}
}
