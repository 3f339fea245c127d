package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fake answers as told; methods that a test doesn't set panic.
type fake struct {
	Workspace
	seal  func(context.Context, SealRequest) (*SealReceipt, error)
	patch func(io.Writer) error
}

func (f fake) Seal(ctx context.Context, r SealRequest) (*SealReceipt, error) { return f.seal(ctx, r) }
func (f fake) Render(_ context.Context, _ RenderRequest, w io.Writer) error  { return f.patch(w) }

// longDir is a directory whose path doesn't fit into a socket's address.
func longDir(t *testing.T) string {
	return filepath.Join(t.TempDir(), strings.Repeat("long", 30), "run")
}

func TestForkOfAnotherProcessIsAskedThroughItsSocket(t *testing.T) {
	dir := longDir(t)
	c, err := startControl(dir, "store")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	c.add("f1", fake{
		seal: func(_ context.Context, r SealRequest) (*SealReceipt, error) {
			if r.Name == "taken" {
				return nil, &Refusal{Rule: "names", Code: "name_taken", Summary: "the name is taken"}
			}
			return &SealReceipt{Checkpoint: "c-" + r.Name, Changed: true}, nil
		},
		patch: func(w io.Writer) error { _, err := io.WriteString(w, strings.Repeat("x", 1<<20)); return err },
	}, nil)
	ctx := context.Background()
	if r, err := findServer(ctx, dir, "store", "f2"); r != nil || err != nil {
		t.Fatalf("a fork that nobody serves: %v, %v", r, err)
	}
	if r, err := findServer(ctx, dir, "another store", "f1"); r != nil || err != nil {
		t.Fatalf("a fork of another store: %v, %v", r, err)
	}
	r, err := findServer(ctx, dir, "store", "f1")
	if err != nil || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	defer r.Close()
	receipt, err := r.Seal(ctx, SealRequest{Name: "n"})
	if err != nil || receipt.Checkpoint != "c-n" || !receipt.Changed {
		t.Errorf("seal: %+v, %v", receipt, err)
	}
	_, err = r.Seal(ctx, SealRequest{Name: "taken"})
	if v := Judge(err); v.Class != Refused || v.Rule != "names" || v.Code != "name_taken" || err.Error() != "refused (names): the name is taken" {
		t.Errorf("refusal: %v, %+v", err, v)
	}
	var patch strings.Builder
	if err := r.Render(ctx, RenderRequest{}, &patch); err != nil || patch.Len() != 1<<20 {
		t.Errorf("patch: %d bytes, %v", patch.Len(), err)
	}
	err = r.unserve(ctx)
	if v := Judge(err); v.Class != Refused || v.Code != "in_use" {
		t.Errorf("unserve: %v", err)
	}
}

func TestO5_HalfAStreamIsAnError(t *testing.T) {
	dir := longDir(t)
	c, err := startControl(dir, "store")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	begin := ""
	c.add("f", fake{patch: func(w io.Writer) error {
		io.WriteString(w, begin)
		return fmt.Errorf("reading a blob: %w", unix.EIO)
	}}, nil)
	ctx := context.Background()
	r, err := findServer(ctx, dir, "store", "f")
	if err != nil || r == nil {
		t.Fatal(r, err)
	}
	defer r.Close()
	for _, begin = range []string{"", "diff --git"} {
		var out strings.Builder
		err := r.Render(ctx, RenderRequest{}, &out)
		if err == nil || !strings.Contains(err.Error(), "reading a blob") || out.String() != begin {
			t.Errorf("after %q: %v, got %q", begin, err, out.String())
		}
	}
}

func TestControlHandshakeRefusesOtherVersions(t *testing.T) {
	dir := longDir(t)
	c, err := startControl(dir, "store")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	c.add("f", fake{}, nil)
	client := controlClient(c.path)
	defer client.CloseIdleConnections()
	for _, version := range []string{"", "0", "2", "1.0"} {
		req, _ := http.NewRequest("POST", "http://tine/v1/forks/f/seal", strings.NewReader("{}"))
		req.Header.Set(controlHeader, version)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		err = readError(resp)
		resp.Body.Close()
		if resp.StatusCode != http.StatusUpgradeRequired || !strings.Contains(err.Error(), "versions 1 to 1") {
			t.Errorf("version %q: %s, %v", version, resp.Status, err)
		}
	}
	req, _ := http.NewRequest("POST", "http://tine/v1/forks/f/seal", strings.NewReader(`{"newer":1}`))
	req.Header.Set(controlHeader, "1")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := readError(resp); !strings.Contains(err.Error(), "newer") {
		t.Errorf("an unknown option: %v", err)
	}
}

func TestSocketsOfDeadProcessesAreCleared(t *testing.T) {
	dir := longDir(t)
	c, err := startControl(dir, "store")
	if err != nil {
		t.Fatal(err)
	}
	c.add("f", fake{}, nil)
	c.listener.(*net.UnixListener).Close() // as after kill -9: the file is there, nobody listens
	if r, err := findServer(context.Background(), dir, "store", "f"); r != nil || err != nil {
		t.Fatalf("%v, %v", r, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestRequestEndsWithItsClient(t *testing.T) {
	dir := longDir(t)
	c, err := startControl(dir, "store")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	ended := make(chan error, 1)
	c.add("f", fake{seal: func(ctx context.Context, _ SealRequest) (*SealReceipt, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}}, nil)
	r, err := findServer(context.Background(), dir, "store", "f")
	if err != nil || r == nil {
		t.Fatal(r, err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Seal(ctx, SealRequest{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("client: %v", err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the server goes on")
	}
}
