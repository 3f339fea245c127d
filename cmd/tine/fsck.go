package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"tine/sidecar"
)

func (a *app) fsckCommand() *cobra.Command {
	var all bool
	var r sidecar.FsckRequest
	cmd := &cobra.Command{
		Use: "fsck [CHECKPOINT]", Short: "Check that the store holds what it says", GroupID: "host",
		Long: `fsck reads a checkpoint with all its contents, or everything in the store, and compares it with its ids; forks are
replayed. It fails when it finds damage, and changes nothing unless --repair is given.`,
		Example: `  tine fsck --all
  tine fsck base`,
		Args:              between(0, "CHECKPOINT"),
		ValidArgsFunction: a.completeArgs(1, "checkpoint"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 1 {
				if all {
					return &usageError{"give either CHECKPOINT or --all"}
				}
				r.Checkpoint = args[0]
			}
			h, err := a.host(false)
			if err != nil {
				return err
			}
			defer closing(h, &err)
			doc, err := h.Fsck(cmd.Context(), r)
			if err != nil {
				return err
			}
			err = a.printDocument(doc, func(w io.Writer) error { return a.showFsck(w, doc) })
			if err == nil && len(doc.Faults) > 0 {
				return &exitError{statusFailed}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "everything (the default without CHECKPOINT)")
	cmd.Flags().BoolVar(&r.Quick, "quick", false, "look for contents without reading them")
	cmd.Flags().BoolVar(&r.Repair, "repair", false, "mend what can be mended without losing anything")
	return cmd
}

// faultLines is how many faults people see: a source that is gone is one for each of its contents.
const faultLines = 20

func (a *app) showFsck(w io.Writer, doc *sidecar.FsckReport) error {
	for i, f := range doc.Faults {
		if i == faultLines {
			fmt.Fprintf(w, "… and %s; --json lists them all\n", count(int64(len(doc.Faults)-i), "more fault"))
			break
		}
		fmt.Fprintf(w, "%s %s\n", paint(a.outColour, red, "damaged:"), f)
	}
	for _, f := range doc.Repaired {
		fmt.Fprintf(w, "%s %s\n", paint(a.outColour, green, "mended:"), f)
	}
	for _, n := range doc.Notes {
		fmt.Fprintf(w, "%s %s\n", paint(a.outColour, yellow, "note:"), n)
	}
	verdict := "all is well"
	if len(doc.Faults) > 0 {
		verdict = count(int64(len(doc.Faults)), "fault")
	}
	_, err := fmt.Fprintf(w, "%s, %s (%s read), %s checked in %s: %s\n", count(int64(doc.Checkpoints), "checkpoint"),
		count(int64(doc.Contents), "content"), size(doc.Bytes), count(int64(doc.Forks), "fork"), seconds(doc.Seconds), verdict)
	return err
}
