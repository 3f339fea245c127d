package sidecar

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tine/sidecar/isolate"
	"tine/sidecar/record"
	"tine/snapshot/durable"
	"tine/snapshot/pin"
)

// testHost is a host with a new store and a repository of two files.
func testHost(t *testing.T) (h *Host, repo string) {
	t.Helper()
	rooted(t)
	t.Setenv("HOME", t.TempDir())
	// Not below /tmp, which a run has of its own.
	top, err := os.MkdirTemp("/var/tmp", "tine-sidecar-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	repo = filepath.Join(top, "repo")
	for name, text := range map[string]string{"a": "one\n", "dir/b": "two\n"} {
		p := filepath.Join(repo, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	git(t, repo, "init", "-q", "-b", "main")
	git(t, repo, "add", "-A")
	git(t, repo, "commit", "-q", "-m", "first")
	h, err = Open(Config{Store: filepath.Join(top, "store"), Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, repo
}

// nothingLeft fails for forks, pins, layers, scratch files or sockets that a run left.
func nothingLeft(t *testing.T, h *Host) {
	t.Helper()
	forks, err := h.forks.List()
	if err != nil || len(forks) > 0 {
		t.Errorf("forks left: %v, %v", forks, err)
	}
	pins, err := h.pins.List()
	if err != nil || len(pins) > 0 {
		t.Errorf("pins left: %v, %v", pins, err)
	}
	for _, dir := range []string{"layers", "tmp"} {
		entries, err := os.ReadDir(h.path(dir))
		for _, e := range entries {
			if err == nil && e.Name() != "lock" {
				t.Errorf("left: %s/%s", dir, e.Name())
			}
		}
	}
}

func TestA11_CheckpointIsPinnedFromBeforeTheForkToItsDisposal(t *testing.T) {
	h, repo := testHost(t)
	var during []pin.Pin
	var stderr bytes.Buffer
	res, err := h.Run(context.Background(), &RunRequest{
		Repo: repo, Args: []string{"true"}, Stderr: &stderr,
		Started: func() { during, _ = h.pins.List() },
	})
	if err != nil {
		t.Fatal(err, stderr.String())
	}
	base := res.Record.Systems[0].Checkpoint
	if len(during) != 1 || during[0].State != pin.Confirmed || during[0].Checkpoint != base || during[0].Owner != "run:"+res.Record.ID {
		t.Errorf("while it ran: %+v", during)
	}
	nothingLeft(t, h)

	// --pin keeps it as long as the record, --retain-until longer.
	until := time.Now().Add(time.Hour)
	for _, req := range []*RunRequest{{Pin: true}, {Pin: true, Retain: &until}} {
		req.Repo, req.Args = repo, []string{"true"}
		res, err := h.Run(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		if pins, _ := h.pins.List(); len(pins) != 1 {
			t.Errorf("after a run with --pin: %v", pins)
		}
		if _, err := h.RemoveRun(context.Background(), res.Record.ID); err != nil {
			t.Fatal(err)
		}
		pins, _ := h.pins.List()
		if kept := len(pins) == 1; kept != (req.Retain != nil) {
			t.Errorf("after the record is gone: %v", pins)
		}
	}
}

func TestC1_RefusedAndFailedRunsLeaveNothing(t *testing.T) {
	h, repo := testHost(t)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		req  RunRequest
		want Class
	}{
		{"no program", context.Background(), RunRequest{Repo: repo}, Usage},
		{"two sources", context.Background(), RunRequest{Repo: repo, Checkpoint: "x", Args: []string{"true"}}, Usage},
		{"no such user", context.Background(), RunRequest{Repo: repo, User: "nobody-of-this-name", Args: []string{"true"}}, Usage},
		{"no such revision", context.Background(), RunRequest{Repo: repo, Rev: "nothing", Args: []string{"true"}}, Failed},
		{"not found", context.Background(), RunRequest{Repo: repo, Args: []string{"no-such-program"}}, Failed},
		{"bad workdir", context.Background(), RunRequest{Repo: repo, Workdir: "nowhere", Args: []string{"true"}}, Usage},
		{"interrupted", cancelled, RunRequest{Repo: repo, Args: []string{"true"}}, Failed},
	} {
		res, err := h.Run(c.ctx, &c.req)
		if err == nil || Judge(err).Class != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
		if res != nil && (res.Record.State != record.Failed || res.Record.Error == nil || *res.Record.Status < 125) {
			t.Errorf("%s: record %+v", c.name, res.Record)
		}
		nothingLeft(t, h)
	}
}

func TestL4_SealOfARunIsKeptByItsRecordAndItsName(t *testing.T) {
	h, repo := testHost(t)
	res, err := h.Run(context.Background(), &RunRequest{Repo: repo, Name: "r", Args: []string{"sh", "-c", "echo x >new; rm a"}})
	if err != nil {
		t.Fatal(err)
	}
	s := res.Record.Systems[0]
	if s.Sealed == nil || s.ChangedFiles != 2 || *s.Sealed == s.Checkpoint {
		t.Fatalf("%+v", s)
	}
	r, err := h.RunRecord("r")
	if err != nil || *r.Systems[0].Sealed != *s.Sealed {
		t.Errorf("record: %+v, %v", r, err)
	}
	c, err := h.Checkpoint(context.Background(), "r")
	if err != nil || c.Checkpoint != *s.Sealed || c.Tree != *s.SealedTree {
		t.Errorf("name: %+v, %v", c, err)
	}
	nothingLeft(t, h)
}

func TestL2_RunWithoutChangesSealsToItsBase(t *testing.T) {
	h, repo := testHost(t)
	for policy, want := range map[SealPolicy]bool{SealChanged: false, SealNever: false, SealAlways: true} {
		res, err := h.Run(context.Background(), &RunRequest{Repo: repo, Seal: policy, Args: []string{"cat", "a"}})
		if err != nil {
			t.Fatal(err)
		}
		s := res.Record.Systems[0]
		if (s.Sealed != nil) != want || want && *s.Sealed != s.Checkpoint {
			t.Errorf("%s: sealed %v over %s", policy, s.Sealed, s.Checkpoint)
		}
	}
}

// TestC6_RecordsHoldNoHandle: no scope, token, path of the host or secret is in a record.
func TestC6_RecordsHoldNoHandle(t *testing.T) {
	h, repo := testHost(t)
	t.Setenv("TINE_TEST_SECRET", "very secret")
	res, err := h.Run(context.Background(), &RunRequest{Repo: repo, Env: []string{"TINE_TEST_SECRET"}, Args: []string{"sh", "-c", "test ${#TINE_TEST_SECRET} = 11"}})
	if err != nil || *res.Record.Status != 0 {
		t.Fatal(err, res)
	}
	text, err := durable.ReadFile(durable.OS, h.path("runs", res.Record.ID+".json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"very secret", "scope", "token", h.dir, repo, ".sock"} {
		if strings.Contains(string(text), bad) {
			t.Errorf("the record has %q:\n%s", bad, text)
		}
	}
}

// TestS13_SourceStaysHiddenWhateverTheWayToIt: also from a run on a checkpoint that has all its contents, and on one that
// was sealed over such a one.
func TestS13_SourceStaysHiddenWhateverTheWayToIt(t *testing.T) {
	h, repo := testHost(t)
	ctx := context.Background()
	eager, err := h.ImportGit(ctx, ImportGit{Repo: repo, Eager: true})
	if err != nil {
		t.Fatal(err)
	}
	from := eager.Checkpoint
	for range 2 {
		var out bytes.Buffer
		res, err := h.Run(ctx, &RunRequest{Checkpoint: from, Stdout: &out, Args: []string{"sh", "-c", "cat " + repo + "/a " + repo + "/.git/HEAD " + h.dir + "/format; date >new"}})
		if err != nil || res.Record.Systems[0].Sealed == nil {
			t.Fatal(err, res)
		}
		if out.Len() > 0 {
			t.Errorf("seen: %s", out.String())
		}
		from = *res.Record.Systems[0].Sealed
	}
}

func TestRunSaysThatTheMemoryLimitKilled(t *testing.T) {
	h, repo := testHost(t)
	res, err := h.Run(context.Background(), &RunRequest{Repo: repo, Memory: 64 << 20, Args: []string{"sh", "-c", "head -c 200M /dev/zero | tail -c 200M >/dev/null"}})
	var unsupported *isolate.UnsupportedError
	if errors.As(err, &unsupported) {
		t.Skip(err)
	}
	if err != nil || !res.Record.OOMKilled || *res.Record.Status != 137 {
		t.Fatalf("%+v, %v", res, err)
	}
	res, err = h.Run(context.Background(), &RunRequest{Repo: repo, Args: []string{"sh", "-c", "kill -9 $$"}})
	if err != nil || res.Record.OOMKilled || *res.Record.Status != 137 {
		t.Fatalf("%+v, %v", res, err)
	}
	nothingLeft(t, h)
}
