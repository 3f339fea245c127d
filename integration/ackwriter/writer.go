package ackwriter

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"
)

// Line is one line of a writer's log.
type Line struct {
	Begin *Op        `json:"begin,omitempty"`
	Done  bool       `json:"done,omitempty"` // the operation last begun has returned, with Errno
	Errno unix.Errno `json:"errno,omitempty"`
	// Dead: the server went away under the operation last begun, or between two; the writer stops.
	Dead bool `json:"dead,omitempty"`
}

// gone are the errors of a mount whose server is dead.
var gone = []unix.Errno{unix.ENOTCONN, unix.ECONNABORTED, unix.EIO, unix.ENODEV}

// Write makes random operations in root until the server dies or count are done (0: no limit), and logs to w with
// one unbuffered write per line, so that a line says what had happened however this process ends.
func Write(root string, seed uint64, count int, w io.Writer) error {
	say := func(l Line) error {
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		_, err = w.Write(append(b, '\n'))
		return err
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", root, err)
	}
	defer unix.Close(fd)
	unix.Umask(0)
	g := newGenerator(root, seed)
	for i := 0; count == 0 || i < count; i++ {
		op, err := g.next()
		if err != nil {
			if slices.Contains(gone, Errno(err)) {
				return say(Line{Dead: true})
			}
			return err
		}
		if err := say(Line{Begin: &op}); err != nil {
			return err
		}
		errno := Errno(Apply(fd, op))
		if slices.Contains(gone, errno) {
			return say(Line{Dead: true})
		}
		if err := say(Line{Done: true, Errno: errno}); err != nil {
			return err
		}
	}
	return nil
}
