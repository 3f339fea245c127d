package ackwriter

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"tine/integration/manifest"
)

// Mirror is a directory on an ordinary file system that holds what a writer was told has happened.
type Mirror struct {
	Dir string
	// Since (ns since 1970): later mtimes are "now" on both sides.
	Since int64
	// Acked counts the acknowledged operations.
	Acked int
	// history are the acknowledged operations that succeeded, in order.
	history []Op
	// pending is the operation that had begun and not returned when the log ended.
	pending *Op
}

// Follow applies a writer's log as it comes, until it ends. An operation that had another result in the mirror than
// in the workspace is an error.
func (m *Mirror) Follow(log io.Reader) error {
	unix.Umask(0)
	fd, err := unix.Open(m.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	in := bufio.NewReaderSize(log, 1<<16)
	m.pending = nil
	for {
		raw, err := in.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var l Line
		if err := json.Unmarshal(raw, &l); err != nil {
			return fmt.Errorf("log line %q: %w", raw, err)
		}
		switch {
		case l.Begin != nil:
			m.pending = l.Begin
		case l.Done:
			if got := Errno(Apply(fd, *m.pending)); got != l.Errno {
				return fmt.Errorf("%+v: the workspace says %q, the reference %q", *m.pending, l.Errno, got)
			}
			if l.Errno == 0 {
				m.history = append(m.history, *m.pending)
			}
			m.pending = nil
			m.Acked++
		case l.Dead:
			return nil
		}
	}
}

// Compare says how the workspace differs from what was acknowledged (nothing: nil). The operation that was under way
// may have happened, wholly or in part, or not; afterwards the mirror says which.
func (m *Mirror) Compare(workspace string) ([]string, error) {
	got, err := manifest.Take(workspace, manifest.Options{})
	if err != nil {
		return nil, fmt.Errorf("read the workspace: %w", err)
	}
	if bad := manifest.Inconsistent(got); bad != nil {
		return bad, nil
	}
	diff, err := m.diff(got)
	if err != nil || diff == nil || m.pending == nil {
		return diff, err
	}
	op := *m.pending
	m.pending = nil
	before, err := m.bytes(op)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(m.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	_ = Apply(fd, op) // its result was never seen
	with, err := m.diff(got)
	if err != nil || with == nil {
		return nil, err
	}
	if err := m.adoptPart(workspace, op, before); err != nil {
		return append(diff, fmt.Sprintf("(not explained by a part of %+v: %v)", op, err)), nil
	}
	with, err = m.diff(got)
	if err != nil || with == nil {
		return nil, err
	}
	return append(with, fmt.Sprintf("(the operation under way was %+v)", op)), nil
}

func (m *Mirror) diff(got manifest.Manifest) ([]string, error) {
	want, err := manifest.Take(m.Dir, manifest.Options{})
	if err != nil {
		return nil, fmt.Errorf("read the mirror: %w", err)
	}
	return manifest.Compare("acknowledged", want, "workspace", got, manifest.Rules{RecentMtime: m.Since}), nil
}

// About gives the last operations on a path of a difference that Compare found.
func (m *Mirror) About(difference string) []string {
	name, err := strconv.QuotedPrefix(difference)
	if err != nil {
		return nil
	}
	if name, err = strconv.Unquote(name); err != nil {
		return nil
	}
	var out []string
	for _, op := range m.history {
		if op.Path == name || op.To == name {
			out = append(out, fmt.Sprintf("%+v", op))
		}
	}
	return out[max(0, len(out)-6):]
}

// target is the file whose bytes op changes, "" if it changes none.
func (op Op) target() string {
	switch op.Kind {
	case "write", "append", "mmap", "fallocate", "truncate":
		return op.Path
	case "copy-range":
		return op.To
	}
	return ""
}

func (m *Mirror) bytes(op Op) ([]byte, error) {
	t := op.target()
	if t == "" {
		return nil, nil
	}
	fi, err := os.Lstat(filepath.Join(m.Dir, t))
	if err != nil || !fi.Mode().IsRegular() {
		return nil, nil
	}
	return os.ReadFile(filepath.Join(m.Dir, t))
}

// adoptPart takes the workspace's bytes of op's target into the mirror if each of them is the one before or the one
// after op: a large write is several requests, mapped pages are written back one by one.
func (m *Mirror) adoptPart(workspace string, op Op, before []byte) error {
	t := op.target()
	if t == "" {
		return fmt.Errorf("%s is all or nothing", op.Kind)
	}
	path := filepath.Join(m.Dir, t)
	after, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	now, err := os.ReadFile(filepath.Join(workspace, t))
	if err != nil {
		return err
	}
	if len(now) < min(len(before), len(after)) || len(now) > max(len(before), len(after)) {
		return fmt.Errorf("%d bytes, from %d to %d", len(now), len(before), len(after))
	}
	for i, b := range now {
		was := i < len(before) && before[i] == b
		is := i < len(after) && after[i] == b
		if !was && !is {
			return fmt.Errorf("byte %d is neither old nor new", i)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(now)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
