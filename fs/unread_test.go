package fs

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"

	"tine/overlay"
	"tine/snapshot/content"
)

func TestReadErrorsCountFiles(t *testing.T) {
	f := face{fork: new(overlay.Fork), log: slog.New(slog.NewTextHandler(io.Discard, nil)), complaints: new(complaints)}
	missing := fmt.Errorf("read: %w", &content.MissingError{Cause: errors.New("gone")})
	f.status("read", 7, missing)
	f.status("read", 7, missing)
	f.status("copy_file_range", 8, missing)
	f.status("write", 9, &content.CorruptError{})
	f.status("read", 10, fmt.Errorf("disk: %w", unix.EIO))
	f.status("read", 11, unix.EISDIR)
	f.status("fsync", 12, fmt.Errorf("disk: %w", unix.EIO))
	c := &Conn{face: &session{face: f}}
	if n := c.ReadErrors(); n != 4 {
		t.Errorf("%d files", n)
	}
}
