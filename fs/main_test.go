package fs_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"tine/fs"
	"tine/overlay"
	"tine/snapshot/image/imagetest"
)

// fixture is a fork on a base, to be mounted by tests.
type fixture struct {
	base   *imagetest.Tree
	fork   *overlay.Fork
	config overlay.Config
}

// newFork makes a fork of a base with the given entries.
func newFork(t testing.TB, entries ...imagetest.Entry) *fixture {
	t.Helper()
	base := imagetest.Build(t, entries...)
	cfg := overlay.Config{
		Base: base.Image, Contents: base.Contents, LayersDir: t.TempDir(), Layers: []overlay.LayerID{overlay.NewLayerID()},
		ForkID: "test-fork", BaseID: "test-base",
	}
	fork, err := overlay.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fork.Close() })
	return &fixture{base: base, fork: fork, config: cfg}
}

// newServer starts a server that ends with the test.
func newServer(t testing.TB) *fs.Server {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	s, err := fs.NewServer(fs.Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// mount attaches a fork at a new directory.
func mount(t testing.TB, s *fs.Server, fork *overlay.Fork, opt fs.MountOptions) (string, *fs.Workspace) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	w, err := s.Mount(ctx, fork, opt, fs.ConnOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	dir := t.TempDir()
	if err := w.Attach(dir); err != nil {
		t.Fatal(err)
	}
	return dir, w
}

// workspace is a mounted fork with the given base.
func workspace(t testing.TB, entries ...imagetest.Entry) (string, *fs.Workspace, *fixture) {
	t.Helper()
	f := newFork(t, entries...)
	s := newServer(t)
	dir, w := mount(t, s, f.fork, fs.MountOptions{})
	return dir, w, f
}

// testLog fails nothing, but shows what the server says.
func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(string(b))
	return len(b), nil
}
