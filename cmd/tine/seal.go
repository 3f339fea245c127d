package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"tine/sidecar"
)

func (a *app) sealCommand() *cobra.Command {
	var r sidecar.SealRequest
	var run string
	var labels []string
	cmd := &cobra.Command{
		Use: "seal FORK | --run RUN", Short: "Turn a fork as it is now into a checkpoint", GroupID: "forks",
		Long: `seal makes a checkpoint of a fork at one instant, also while programs write to it: their changes are parked for that
instant only (freezer "barrier"; what they have stored to mapped pages and not yet synced may be missing then). A fork
that nobody uses is exact (freezer "none"). A fork without changes gives its base's id.

Into a pipe or a file it prints the JSON document without being asked.`,
		Example: `  tine seal try --name try-1
  tine seal --run nightly`,
		Args:              between(0, "FORK"),
		ValidArgsFunction: a.completeArgs(1, "fork"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if (len(args) == 1) == (run != "") {
				return &usageError{"give either FORK or --run RUN"}
			}
			if r.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			h, err := a.host(false)
			if err != nil {
				return err
			}
			defer closing(h, &err)
			ref := run
			if ref != "" {
				if ref, err = h.ForkOfRun(run); err != nil {
					return err
				}
			} else {
				ref = args[0]
			}
			w, err := h.Workspace(cmd.Context(), ref, false)
			if err != nil {
				return err
			}
			defer closing(w, &err)
			receipt, err := w.Seal(cmd.Context(), r)
			if err != nil {
				return err
			}
			return a.printResult(receipt, func(w io.Writer) error {
				id := paint(a.outColour, bold, short(receipt.Checkpoint))
				if !receipt.Changed {
					_, err := fmt.Fprintf(w, "%s  unchanged: the fork's base itself\n", id)
					return err
				}
				named := ""
				if receipt.Name != "" {
					named = "  as " + receipt.Name
				}
				_, err := fmt.Fprintf(w, "%s%s  %s changed, frozen %s (%s), took %s\n", id, named, count(int64(receipt.ChangedFiles), "file"),
					span(time.Duration(receipt.FrozenUS)*time.Microsecond), receipt.Freezer, seconds(receipt.Seconds))
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&run, "run", "", "seal the fork of `RUN`")
	f.StringVar(&r.Name, "name", "", "`NAME` the checkpoint, which also keeps it")
	f.BoolVar(&r.Force, "force", false, "take the name away from what has it")
	f.StringArrayVar(&labels, "label", nil, "label the checkpoint, `K=V` (repeatable)")
	cmd.RegisterFlagCompletionFunc("run", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return a.names("run"), cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}
