package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"tine/sidecar"
)

// mountDocument tells that a fork is mounted and served.
type mountDocument struct {
	Schema string `json:"schema"`
	Fork   string `json:"fork"`
	Path   string `json:"path"`
	PID    int    `json:"pid" doc:"the process that serves it: this one"`
}

func (a *app) mountCommand() *cobra.Command {
	return &cobra.Command{
		Use: "mount FORK DIR", Short: "Mount a fork and serve it until unmounted or interrupted", GroupID: "forks",
		Long: `mount serves a fork at DIR in the foreground until 'umount DIR', Ctrl-C or SIGTERM. Once the mount is ready it prints
one line. A mount that a server left behind when it was killed is replaced: nothing that had returned is lost.`,
		Example: `  tine mount try /mnt/try
  tine mount try /mnt/try --json &`,
		Args: exactly("FORK", "DIR"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveFilterDirs
			}
			return a.completeArgs(1, "fork")(cmd, args, word)
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			h, err := a.host(false)
			if err != nil {
				return err
			}
			defer closing(h, &err)
			r := sidecar.MountRequest{Fork: args[0], Dir: args[1]}
			r.Note = func(text string) { a.note("%s", text) }
			r.Ready = func(m sidecar.Mounted) error {
				return a.printDocument(mountDocument{"tine.mount/v1", m.Fork, m.Path, m.PID}, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s mounted at %s\n", short(m.Fork), m.Path)
					return err
				})
			}
			return h.Mount(cmd.Context(), r)
		},
	}
}
