package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"tine/sidecar"
)

// diffFlags choose how changes are shown.
type diffFlags struct {
	stat, nameStatus, patch, all bool
}

func (f *diffFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.stat, "stat", false, "lines added and deleted in each file")
	cmd.Flags().BoolVar(&f.nameStatus, "name-status", false, "STATUS<tab>PATH lines, as git prints them")
	cmd.Flags().BoolVar(&f.all, "all", false, "the workspace's .git in full, not as one line")
}

// format is the textual form that the flags ask for, "" for tine's own list.
func (f *diffFlags) format() sidecar.Format {
	switch {
	case f.patch:
		return sidecar.Patch
	case f.stat:
		return sidecar.Stat
	case f.nameStatus:
		return sidecar.NameStatus
	}
	return ""
}

// printDiff shows changes in the form that the flags ask for. JSON is always the list.
func (a *app) printDiff(ctx context.Context, f *diffFlags, list func(sidecar.DiffRequest) ([]sidecar.Change, error), text func(sidecar.RenderRequest, io.Writer) error) error {
	if format := f.format(); format == sidecar.Patch || format != "" && !a.json {
		a.printed = true // standard output is the text's
		return text(sidecar.RenderRequest{Format: format, All: f.all, Width: a.width}, a.out)
	}
	changes, err := list(sidecar.DiffRequest{All: f.all})
	if err != nil {
		return err
	}
	return a.printDocument(changes, func(w io.Writer) error {
		var b strings.Builder
		for _, l := range folded(changes, false) {
			b.WriteString(l.text(a.outColour) + "\n")
		}
		_, err := io.WriteString(w, b.String())
		return err
	})
}
