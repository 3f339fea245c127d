package fs_test

import (
	"context"
	"os"
	"testing"
	"time"

	"tine/fs"
	"tine/fs/transport"
	"tine/overlay"
	"tine/overlay/journal"
	"tine/snapshot/durable"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

// A server that is killed while it uses its own mount dies, and its mount with it: nothing waits for its answer for
// ever, and the fork can be served again.
func TestO6_KilledInItsOwnMount(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	_, b := imagetest.Builder(t, imagetest.Dir("d", 0755))
	img, layers := t.TempDir()+"/image", t.TempDir()
	if _, err := b.Write(durable.OS, img); err != nil {
		t.Fatal(err)
	}
	layer := overlay.NewLayerID()
	for _, op := range []string{"GETATTR", "OPENDIR", "LOOKUP", "OPEN", "FLUSH"} {
		cmd, _ := startChild(t, "silent-server", img, layers, layer.String(), op)
		cmd.Process.Kill()
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			t.Fatalf("%s: the killed server doesn't die", op)
		}
		fork, err := overlay.Open(silentConfig(t, img, layers, layer))
		if err != nil {
			t.Fatalf("%s: %v", op, err)
		}
		fork.Close()
	}
}

func silentConfig(t *testing.T, img, layers string, layer overlay.LayerID) overlay.Config {
	base, err := image.Open(durable.OS, img, nil)
	if err != nil {
		if t == nil {
			panic(err)
		}
		t.Fatal(err)
	}
	return overlay.Config{
		Base: base, Contents: &noContents{}, LayersDir: layers, Layers: []overlay.LayerID{layer}, ForkID: "f", BaseID: "b",
	}
}

func init() {
	// Arguments: image, layers, layer, the operation that it never answers. It says so when it comes.
	children["silent-server"] = func(args []string) error {
		layer, err := journal.ParseLayerID(args[2])
		if err != nil {
			return err
		}
		fork, err := overlay.Open(silentConfig(nil, args[0], args[1], layer))
		if err != nil {
			return err
		}
		s, err := fs.NewServer(fs.Options{})
		if err != nil {
			return err
		}
		fs.WrapHandlers(func(h transport.Handler) transport.Handler { return &silent{h, args[3]} })
		_, err = s.Mount(context.Background(), fork, fs.MountOptions{}, fs.ConnOptions{})
		return err
	}
}

// silent never answers one kind of request.
type silent struct {
	transport.Handler
	op string
}

func (s *silent) Handle(msg transport.Msg, out []byte) int {
	if transport.OpName(msg.Opcode()) == s.op {
		os.Stdout.WriteString("ready\n")
		select {}
	}
	return s.Handler.Handle(msg, out)
}
