package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// remoteFork is a Workspace that another process serves.
type remoteFork struct {
	id     string
	client *http.Client
	hello  Hello
}

// findServer asks each process that listens in dir (STORE/run) whether it serves the fork; nil when none does.
func findServer(ctx context.Context, dir, store, fork string) (*remoteFork, error) {
	var found *remoteFork
	err := eachServer(ctx, dir, store, func(r *remoteFork) (bool, error) {
		if !slices.Contains(r.hello.Forks, fork) {
			return false, nil
		}
		if r.hello.Protocol < ControlOldest || r.hello.Oldest > ControlVersion {
			return false, fmt.Errorf("%w: process %d speaks versions %d to %d of the protocol, this tine %d to %d; use the same tine for both",
				ErrControl, r.hello.PID, r.hello.Oldest, r.hello.Protocol, ControlOldest, ControlVersion)
		}
		r.id = fork
		found = r
		return true, nil
	})
	return found, err
}

// eachServer calls do for each process of the store that answers, until do takes one (which then is the caller's).
// Sockets whose process is gone are removed: their names are never used again. One that is stopped, or dies while it is
// asked, must not keep commands from what others serve or nobody does: it is passed over, and the fork's lock tells
// whether the fork is its.
func eachServer(ctx context.Context, dir, store string, do func(*remoteFork) (taken bool, err error)) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("control sockets: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".sock") {
			continue
		}
		r := &remoteFork{client: controlClient(filepath.Join(dir, e.Name()))}
		err := r.greet(ctx)
		switch {
		case errors.Is(err, unix.ECONNREFUSED):
			os.Remove(filepath.Join(dir, e.Name()))
		case errors.Is(err, fs.ErrNotExist): // it has just ended
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
		case r.hello.Store == store:
			taken, err := do(r)
			if taken || err != nil {
				return err
			}
		}
		r.client.CloseIdleConnections()
	}
	return nil
}

// statuses asks a process for all forks that it serves.
func (r *remoteFork) statuses(ctx context.Context) (list []ForkStatus, err error) {
	return list, r.request(ctx, "GET", "/v1/forks", nil, &list)
}

func controlClient(path string) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		var d net.Dialer
		return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableCompression: true}}
}

// greet is the handshake. A process that is alive answers at once, whatever it is doing.
func (r *remoteFork) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := r.send(ctx, "GET", "/control", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&r.hello); err != nil {
		return fmt.Errorf("%w: handshake: %w", ErrControl, err)
	}
	return nil
}

func (r *remoteFork) send(ctx context.Context, method, path string, req any) (*http.Response, error) {
	var body io.Reader
	if req != nil {
		data, err := json.Marshal(req)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	hr, err := http.NewRequestWithContext(ctx, method, "http://tine"+path, body)
	if err != nil {
		return nil, err
	}
	hr.Header.Set(controlHeader, strconv.Itoa(min(ControlVersion, max(r.hello.Protocol, ControlOldest))))
	resp, err := r.client.Do(hr)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %w", ErrControl, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, readError(resp)
	}
	return resp, nil
}

func (r *remoteFork) ask(ctx context.Context, method, op string, req, answer any) error {
	return r.request(ctx, method, "/v1/forks/"+r.id+op, req, answer)
}

func (r *remoteFork) request(ctx context.Context, method, path string, req, answer any) error {
	resp, err := r.send(ctx, method, path, req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("%w: answer: %w", ErrControl, err)
	}
	return nil
}

func (r *remoteFork) stream(ctx context.Context, op string, req any, w io.Writer) error {
	resp, err := r.send(ctx, "POST", "/v1/forks/"+r.id+op, req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("%w: %w", ErrControl, err)
	}
	switch end := resp.Trailer.Get(trailerError); end {
	case trailerDone:
		return nil
	case "":
		return fmt.Errorf("%w: the answer was cut short", ErrControl)
	default:
		return fmt.Errorf("%w: %s", ErrControl, end)
	}
}

func (r *remoteFork) Status(ctx context.Context) (s ForkStatus, err error) {
	return s, r.ask(ctx, "GET", "", nil, &s)
}

func (r *remoteFork) Diff(ctx context.Context, req DiffRequest) (*ForkDiff, error) {
	var d ForkDiff
	return &d, r.ask(ctx, "POST", "/diff", req, &d)
}

func (r *remoteFork) Seal(ctx context.Context, req SealRequest) (*SealReceipt, error) {
	var s SealReceipt
	return &s, r.ask(ctx, "POST", "/seal", req, &s)
}

func (r *remoteFork) Fork(ctx context.Context, req ForkRequest) (forks []CreatedFork, err error) {
	return forks, r.ask(ctx, "POST", "/fork", req, &forks)
}

func (r *remoteFork) Render(ctx context.Context, req RenderRequest, w io.Writer) error {
	return r.stream(ctx, "/render", req, w)
}

func (r *remoteFork) Export(ctx context.Context, req ExportRequest, w io.Writer) error {
	return r.stream(ctx, "/export", req, w)
}

// unserve asks the other process to unmount and close the fork.
func (r *remoteFork) unserve(ctx context.Context) error {
	return r.ask(ctx, "POST", "/unserve", struct{}{}, &struct{}{})
}

func (r *remoteFork) Close() error {
	r.client.CloseIdleConnections()
	return nil
}
