package isolate

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// openStdio prepares the three descriptors that init starts with; they become the program's unless it gets a terminal.
func (p *Process) openStdio() error {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return setupErr("open /dev/null", err)
	}
	p.owned = append(p.owned, null)
	p.stdio = [3]*os.File{null, null, null}
	if p.spec.TTY {
		return nil
	}
	if p.stdio[0], err = p.input(p.spec.Stdin, null); err != nil {
		return err
	}
	if p.stdio[1], err = p.output("standard output", p.spec.Stdout, null); err != nil {
		return err
	}
	if p.spec.Stderr != nil && p.spec.Stderr == p.spec.Stdout {
		p.stdio[2] = p.stdio[1] // one pipe keeps the order
		return nil
	}
	p.stdio[2], err = p.output("standard error", p.spec.Stderr, null)
	return err
}

func (p *Process) input(r io.Reader, null *os.File) (*os.File, error) {
	if f, ok := r.(*os.File); ok && f != nil {
		return f, passable("standard input", f)
	}
	if r == nil || isNilFile(r) {
		return null, nil
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, setupErr("make pipe", err)
	}
	p.owned = append(p.owned, pr)
	p.copies.source(pw, r)
	return pr, nil
}

func (p *Process) output(name string, w io.Writer, null *os.File) (*os.File, error) {
	if f, ok := w.(*os.File); ok && f != nil {
		return f, passable(name, f)
	}
	if w == nil || isNilFile(w) {
		return null, nil
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, setupErr("make pipe", err)
	}
	p.owned = append(p.owned, pw)
	p.copies.sink(w, pr)
	return pw, nil
}

func isNilFile(v any) bool {
	f, ok := v.(*os.File)
	return ok && f == nil
}

// passable refuses what would be a way out of the view: a directory is a place to openat from, a block device is a disk.
func passable(name string, f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return setupErr("examine "+name, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return &RefusedError{Rule: "S13", Reason: name + " is a directory: through it the program could leave its view"}
	case unix.S_IFBLK:
		return &RefusedError{Rule: "S13", Reason: name + " is a block device"}
	}
	return nil
}

// copiers move bytes between the caller's readers and writers and the program's pipes or terminal.
type copiers struct {
	pending []func() // started by attach
	outputs sync.WaitGroup
	closers []io.Closer
	stops   []func()
}

// source feeds the program. Nobody waits for it: a reader may block for ever.
func (c *copiers) source(pw *os.File, r io.Reader) {
	c.closers = append(c.closers, pw)
	c.pending = append(c.pending, func() {
		go func() {
			io.Copy(pw, r)
			pw.Close()
		}()
	})
}

// sink drains the program; it ends when no process holds the other end.
func (c *copiers) sink(w io.Writer, pr *os.File) {
	c.closers = append(c.closers, pr)
	c.outputs.Add(1)
	c.pending = append(c.pending, func() {
		go func() {
			defer c.outputs.Done()
			if _, err := io.Copy(w, pr); err != nil {
				io.Copy(io.Discard, pr) // a writer that fails doesn't stop the program by itself
			}
		}()
	})
}

func (c *copiers) start() {
	for _, f := range c.pending {
		f()
	}
	c.pending = nil
}

// finish waits for output, then stops the rest.
func (c *copiers) finish() {
	c.outputs.Wait()
	for _, stop := range c.stops {
		stop()
	}
	for _, cl := range c.closers {
		cl.Close()
	}
}

// abandon closes what was prepared for a start that failed.
func (c *copiers) abandon() {
	for _, cl := range c.closers {
		cl.Close()
	}
}
