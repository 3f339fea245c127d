package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) fsckCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "fsck [CHECKPOINT]", Short: "Check that the store holds what it says", GroupID: "host",
		Long: `fsck verifies a checkpoint with its contents, or with --all everything in the store. It changes nothing, and fails
when it finds damage.`,
		Example:           "  tine fsck --all",
		Args:              between(0, "CHECKPOINT"),
		ValidArgsFunction: a.completeArgs(1, "checkpoint"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 1 && all {
				return &usageError{"give either CHECKPOINT or --all"}
			}
			h, err := a.host(false)
			if err != nil {
				return err
			}
			defer closing(h, &err)
			ref := ""
			if len(args) == 1 {
				ref = args[0]
			}
			report, progressDone := a.progress()
			doc, err := h.Fsck(cmd.Context(), ref, report)
			progressDone()
			if err != nil {
				return err
			}
			err = a.printDocument(doc, func(w io.Writer) error {
				for _, f := range doc.Faults {
					fmt.Fprintf(w, "%s %s\n", paint(a.outColour, red, "damaged:"), f)
				}
				for _, n := range doc.Notes {
					fmt.Fprintf(w, "%s %s\n", paint(a.outColour, yellow, "note:"), n)
				}
				verdict := "all is well"
				if len(doc.Faults) > 0 {
					verdict = count(int64(len(doc.Faults)), "fault")
				}
				_, err := fmt.Fprintf(w, "%s, %s, %s checked in %s: %s\n", count(doc.Checkpoints, "checkpoint"), count(doc.Contents, "content"),
					count(doc.Forks, "fork"), seconds(doc.Seconds), verdict)
				return err
			})
			if err == nil && len(doc.Faults) > 0 {
				return &exitError{statusFailed}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "everything (the default without CHECKPOINT)")
	return cmd
}
