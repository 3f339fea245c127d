package isolate

import (
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminalSize is the size of the caller's terminal; zeros when there is none.
func (p *Process) terminalSize() (rows, cols uint16) {
	for _, v := range []any{p.spec.Stdin, p.spec.Stdout} {
		f, ok := v.(*os.File)
		if !ok || f == nil || !term.IsTerminal(int(f.Fd())) {
			continue
		}
		if w, h, err := term.GetSize(int(f.Fd())); err == nil {
			return uint16(h), uint16(w)
		}
	}
	return 0, 0
}

// attach connects the caller's streams to the program that has just started.
func (p *Process) attach() {
	if p.master != nil {
		p.attachTerminal()
	}
	p.copies.start()
}

// attachTerminal moves bytes between the caller's streams and the program's terminal. A terminal of the caller is in raw
// mode meanwhile, so that ^C and the like reach the program's terminal, whose line discipline makes signals of them.
func (p *Process) attachTerminal() {
	master := p.master
	if p.spec.Stdout != nil && !isNilFile(p.spec.Stdout) {
		p.copies.sink(p.spec.Stdout, master)
	} else {
		p.copies.sink(io.Discard, master)
	}
	in, isFile := p.spec.Stdin.(*os.File)
	switch {
	case p.spec.Stdin == nil || isFile && in == nil:
		return
	case !isFile:
		p.copies.pending = append(p.copies.pending, func() {
			go func() {
				io.Copy(master, p.spec.Stdin)
				master.Write([]byte{4}) // the terminal's end of file
			}()
		})
		return
	}
	fd := int(in.Fd())
	if term.IsTerminal(fd) {
		if old, err := term.MakeRaw(fd); err == nil {
			p.copies.stops = append(p.copies.stops, func() { term.Restore(fd, old) })
		}
		p.followSize(fd)
	}
	p.copies.pending = append(p.copies.pending, func() { p.typeInto(master, fd) })
}

// followSize passes changes of the caller's window on.
func (p *Process) followSize(fd int) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	go func() {
		for range changed {
			if w, h, err := term.GetSize(fd); err == nil {
				p.Resize(uint16(h), uint16(w))
			}
		}
	}()
	p.copies.stops = append(p.copies.stops, func() {
		signal.Stop(changed)
		close(changed)
	})
}

// typeInto copies input until it ends or the program does. It polls, so that no keystroke is read that nobody will get.
func (p *Process) typeInto(master *os.File, fd int) {
	var stop [2]int
	if err := unix.Pipe2(stop[:], unix.O_CLOEXEC); err != nil {
		return
	}
	over := make(chan struct{})
	p.copies.stops = append(p.copies.stops, func() {
		unix.Close(stop[1])
		<-over
		unix.Close(stop[0])
	})
	go func() {
		defer close(over)
		buf := make([]byte, 4096)
		for {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(stop[0]), Events: unix.POLLIN}}
			if _, err := unix.Poll(fds, -1); err == unix.EINTR {
				continue
			} else if err != nil || fds[1].Revents != 0 {
				return
			}
			n, err := unix.Read(fd, buf)
			if err == unix.EINTR || err == unix.EAGAIN {
				continue
			}
			if err != nil || n <= 0 {
				master.Write([]byte{4})
				return
			}
			if _, err := master.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
}
