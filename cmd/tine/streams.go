package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// streams are where a command reads and writes. Results go to out; progress, logs and complaints to err.
type streams struct {
	in       io.Reader
	out, err io.Writer

	outTerminal, errTerminal bool
	outColour, errColour     bool
	width                    int // columns of the terminal behind out, 0 when it is none
}

func standardStreams() streams {
	s := streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	s.outTerminal = term.IsTerminal(int(os.Stdout.Fd()))
	s.errTerminal = term.IsTerminal(int(os.Stderr.Fd()))
	plain := os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
	s.outColour = s.outTerminal && !plain
	s.errColour = s.errTerminal && !plain
	if s.outTerminal {
		s.width, _, _ = term.GetSize(int(os.Stdout.Fd()))
	}
	return s
}

// Colours by meaning, as SGR parameters.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func paint(on bool, sgr, s string) string {
	if !on || s == "" {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}
