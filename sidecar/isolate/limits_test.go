package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLimits(t *testing.T) {
	needRoot(t)
	spec := baseSpec(t, `head -c 200M /dev/zero | tail -c 200M | wc -c`)
	spec.Limits.Memory = 64 << 20
	p, err := Start(context.Background(), spec)
	var unsupported *UnsupportedError
	if errors.As(err, &unsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	st, err := p.Wait()
	if err != nil || !st.OOMKilled {
		t.Errorf("memory: %+v, %v", st, err)
	}

	spec = baseSpec(t, `i=0; while [ $i -lt 200 ]; do sleep 5 & i=$((i+1)); done 2>/dev/null; echo spawned`)
	spec.Limits.Pids = 20
	if o := run(t, spec); strings.Contains(o.out, "spawned") && o.status.Code == 0 {
		t.Errorf("200 processes under a limit of 20: %+v", o)
	}

	spec = baseSpec(t, "sleep 60")
	spec.Limits.CPUs = 0.25
	p, err = Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	quota, err := os.ReadFile(filepath.Join(p.Cgroup().V2, "cpu.max"))
	if d := p.Cgroup().V1["cpu"]; d != "" {
		quota, err = os.ReadFile(filepath.Join(d, "cpu.cfs_quota_us"))
	}
	if err != nil || !strings.HasPrefix(string(quota), "25000") {
		t.Errorf("cpu quota %q, %v", quota, err)
	}
	p.Kill()
	if st, err := p.Wait(); err != nil || st.Code != 137 {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestLimitsRefused: what can't be enforced is refused by name, and nothing is made.
func TestLimitsRefused(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("hugetlb\n"), 0o644)
	for _, h := range []hierarchies{{}, {v2: dir}, {v1: map[string]string{"freezer": dir}}} {
		for _, l := range []Limits{{Memory: 1 << 30}, {CPUs: 1}, {Pids: 10}} {
			_, err := makeCgroup(h, l)
			var u *UnsupportedError
			if !errors.As(err, &u) {
				t.Errorf("%+v with %+v: %v", l, h, err)
			}
		}
	}
	for _, l := range []Limits{{CPUs: 0.001}, {Memory: 1}} {
		var u *UnsupportedError
		if _, err := (hierarchies{v1: map[string]string{"cpu": dir, "memory": dir}}).settings(l); !errors.As(err, &u) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	if e, _ := os.ReadDir(dir); len(e) != 1 {
		t.Errorf("left %v", e)
	}
}

// TestPureV2Settings: on a host with the unified hierarchy only, its controllers are turned on and used.
func TestPureV2Settings(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, parentGroup)} {
		os.MkdirAll(d, 0o755)
		os.WriteFile(filepath.Join(d, "cgroup.controllers"), []byte("cpuset cpu io memory pids\n"), 0o644)
		os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), nil, 0o644)
	}
	got, err := (hierarchies{v2: dir}).settings(Limits{Memory: 1 << 30, CPUs: 1.5, Pids: 10})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"memory.max": "1073741824", "memory.swap.max": "0", "cpu.max": "150000 100000", "pids.max": "26"}
	for _, s := range got {
		if s.v1 != "" || want[s.file] != s.value {
			t.Errorf("%+v", s)
		}
		delete(want, s.file)
	}
	if len(want) != 0 {
		t.Errorf("missing %v", want)
	}
}

func TestFindHierarchies(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"unified", "memory/mine/too", "cpu,cpuacct"} {
		os.MkdirAll(filepath.Join(dir, d), 0o755)
	}
	mounts := []mountEntry{
		{FSType: "cgroup2", Point: filepath.Join(dir, "unified"), Root: "/"},
		{FSType: "cgroup", Point: filepath.Join(dir, "memory"), Root: "/", Super: "rw,memory"},
		{FSType: "cgroup", Point: filepath.Join(dir, "cpu,cpuacct"), Root: "/docker/x", Super: "rw,cpu,cpuacct"},
	}
	h := findHierarchies(mounts, []byte("4:memory:/mine/too\n2:cpu,cpuacct:/docker/x\n0::/user.slice\n"))
	want := map[string]string{"memory": filepath.Join(dir, "memory/mine/too"), "cpu": filepath.Join(dir, "cpu,cpuacct"), "cpuacct": filepath.Join(dir, "cpu,cpuacct")}
	if h.v2 != filepath.Join(dir, "unified") || fmt.Sprint(h.v1) != fmt.Sprint(want) {
		t.Errorf("%+v", h)
	}
}
