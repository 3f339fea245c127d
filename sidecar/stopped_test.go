package sidecar

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"tine/overlay"
)

// mute listens as a server does and hangs up on whoever asks, as one does that dies meanwhile.
func mute(t *testing.T, dir, name string) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
}

// One server that didn't answer, or died while it was asked, failed all commands on all forks of the store.
func TestServerThatDoesNotAnswerIsPassedOver(t *testing.T) {
	h, repo := testHost(t)
	ctx := context.Background()
	f := changedFork(t, h, "git:"+repo, "free")
	held := changedFork(t, h, "git:"+repo, "held")
	if err := h.makeDir("run"); err != nil {
		t.Fatal(err)
	}
	mute(t, h.path("run"), "1-aa.sock")
	list, err := h.Forks(ctx)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	w, err := h.open(ctx, f, false)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := h.RemoveFork(ctx, "free", false); err != nil {
		t.Fatal(err)
	}
	release, err := overlay.Hold(h.path("layers"), held.ID)
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.open(ctx, held, false)
	release()
	if err == nil || !strings.Contains(err.Error(), "doesn't answer") {
		t.Fatal(err)
	}
	if _, err := h.RemoveFork(ctx, "held", false); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, h)
}
