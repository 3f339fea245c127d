package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tine/sidecar"
)

func (a *app) forkCommand() *cobra.Command {
	cmd := group("fork", "Make, compare and remove forks, and run programs in them", "forks",
		a.forkCreate(), a.forkLs(), a.forkShow(), a.forkDiff(), a.forkPatch(), a.forkExport(), a.forkExec(), a.forkRm())
	cmd.Aliases = []string{"forks"}
	return cmd
}

func (a *app) forkCreate() *cobra.Command {
	var r sidecar.ForkRequest
	var maxBytes sizeValue
	var labels []string
	cmd := &cobra.Command{
		Use: "create CHECKPOINT|FORK", Short: "Make a fork of a checkpoint, or of a fork at this instant",
		Long: `create makes a writable view of a checkpoint, or of another fork as it is now, also while that is mounted and being
written. It costs the same whatever the size of either. Mount it with 'tine mount', or run a program in it with
'tine fork exec'.

Into a pipe or a file it prints the JSON document without being asked; with --count an array of them.`,
		Example: `  tine fork create base --name try
  tine fork create try --count 8
  F=$(tine fork create git:.@HEAD~1 | jq -r .fork)`,
		Args:              exactly("CHECKPOINT"),
		ValidArgsFunction: a.completeArgs(1, "checkpoint", "fork"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if r.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			many := cmd.Flags().Changed("count")
			if r.Count < 1 || r.Count > 100_000 {
				return &usageError{"--count: give a number from 1 to 100000"}
			}
			r.MaxBytes = int64(maxBytes)
			h, err := a.host(strings.HasPrefix(args[0], "git:"))
			if err != nil {
				return err
			}
			defer closing(h, &err)
			forks, err := h.CreateForks(cmd.Context(), args[0], r)
			if err != nil {
				return err
			}
			var doc any = forks
			if !many {
				doc = forks[0]
			}
			return a.printResult(doc, func(w io.Writer) error {
				t := newTable("FORK", "NAME", "OF", ">TOOK")
				for _, f := range forks {
					of := f.Checkpoint
					if f.Parent != "" {
						of = f.Parent
					}
					t.row(short(f.Fork), orDash(f.Name), short(of), span(time.Duration(f.Micros)*time.Microsecond))
				}
				return t.write(w, a.outColour)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Name, "name", "", "`NAME` the fork; with --count, NAME-1, NAME-2, …")
	f.BoolVar(&r.Force, "force", false, "take the name away from what has it")
	f.IntVar(&r.Count, "count", 1, "make `N`")
	f.Var(&maxBytes, "max-bytes", "limit what is written to it: `BYTES`, or a number with K, M or G")
	f.Int64Var(&r.MaxFiles, "max-files", 0, "limit the files and directories made in it to `N`")
	f.StringArrayVar(&labels, "label", nil, "label the fork, `K=V` (repeatable)")
	return cmd
}

func (a *app) forkLs() *cobra.Command {
	var filter []string
	cmd := &cobra.Command{
		Use: "ls", Short: "List forks, the newest first", Aliases: []string{"list"},
		Example: "  tine fork ls",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			h, err := a.host(false)
			if err != nil {
				return err
			}
			defer closing(h, &err)
			all, err := h.Forks(cmd.Context())
			if err != nil {
				return err
			}
			list := []*sidecar.Fork{}
			for _, f := range all {
				if selects(filter, f.Labels) {
					list = append(list, f)
				}
			}
			return a.printDocument(list, func(w io.Writer) error {
				now := time.Now()
				t := newTable("FORK", "NAME", "CHECKPOINT", ">LAYERS", "SERVED", "MADE")
				for _, f := range list {
					t.row(short(f.Fork), orDash(f.Name), short(f.Checkpoint), grouped(int64(f.Layers)), served(f), ago(f.Created, now))
				}
				return t.write(w, a.outColour)
			})
		},
	}
	cmd.Flags().StringArrayVar(&filter, "label", nil, "only those with the label `K=V` or K (repeatable)")
	return cmd
}

// served says who serves a fork, and where.
func served(f *sidecar.Fork) string {
	switch {
	case f.PID == 0:
		return "-"
	case f.Path != nil:
		return fmt.Sprintf("at %s by process %d", shown(*f.Path), f.PID)
	default:
		return fmt.Sprintf("by process %d", f.PID)
	}
}

func (a *app) forkShow() *cobra.Command {
	return &cobra.Command{
		Use: "show FORK", Short: "Show what a fork is, who serves it and what it holds",
		Example:           "  tine fork show try",
		Args:              exactly("FORK"),
		ValidArgsFunction: a.completeArgs(1, "fork"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			h, err := a.host(false)
			if err != nil {
				return err
			}
			defer closing(h, &err)
			f, err := h.Fork(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printDocument(f, func(w io.Writer) error { return a.showFork(w, f) })
		},
	}
}

func (a *app) showFork(w io.Writer, f *sidecar.Fork) error {
	var p pairs
	p.add("fork", f.Fork)
	p.add("name", f.Name)
	p.add("checkpoint", f.Checkpoint)
	p.add("parent", f.Parent)
	p.add("served", served(f))
	p.add("layers", grouped(int64(f.Layers)))
	if f.Bytes != nil && f.Inodes != nil {
		p.add("holds", size(*f.Bytes)+" in "+count(*f.Inodes, "inode"))
	}
	var limits []string
	if f.MaxBytes > 0 {
		limits = append(limits, size(f.MaxBytes))
	}
	if f.MaxFiles > 0 {
		limits = append(limits, count(f.MaxFiles, "inode"))
	}
	p.add("limits", strings.Join(limits, ", "))
	p.add("labels", labelList(f.Labels))
	p.add("made", f.Created.Format(time.RFC3339))
	return p.write(w, a.outColour)
}

func (a *app) forkDiff() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use: "diff FORK", Short: "Show what a fork changed",
		Long: `diff compares a fork, as it is now, with the checkpoint that it was made from. The workspace's own .git is one line;
--all expands it.`,
		Example: `  tine fork diff try
  tine fork diff try --name-status`,
		Args:              exactly("FORK"),
		ValidArgsFunction: a.completeArgs(1, "fork"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			return a.withFork(cmd, args[0], func(w sidecar.Workspace) error {
				return a.printDiff(cmd.Context(), &f,
					func(r sidecar.DiffRequest) ([]sidecar.Change, error) {
						d, err := w.Diff(cmd.Context(), r)
						if err != nil {
							return nil, err
						}
						return d.Changes, nil
					},
					func(r sidecar.RenderRequest, out io.Writer) error { return w.Render(cmd.Context(), r, out) })
			})
		},
	}
	f.register(cmd)
	cmd.MarkFlagsMutuallyExclusive("stat", "name-status")
	return cmd
}

// withFork opens a fork, here or through its server, for as long as do runs.
func (a *app) withFork(cmd *cobra.Command, ref string, do func(sidecar.Workspace) error) (err error) {
	h, err := a.host(false)
	if err != nil {
		return err
	}
	defer closing(h, &err)
	w, err := h.Workspace(cmd.Context(), ref, true)
	if err != nil {
		return err
	}
	defer closing(w, &err)
	return do(w)
}

func (a *app) forkPatch() *cobra.Command {
	cmd := &cobra.Command{
		Use: "patch FORK", Short: "Print what a fork changed as a patch that 'git apply' takes",
		Example:           "  tine fork patch try | git apply --index",
		Args:              exactly("FORK"),
		ValidArgsFunction: a.completeArgs(1, "fork"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withFork(cmd, args[0], func(w sidecar.Workspace) error {
				a.printed = true // standard output is the patch's
				return w.Render(cmd.Context(), sidecar.RenderRequest{Format: sidecar.Patch}, a.out)
			})
		},
	}
	return cmd
}

func (a *app) forkExport() *cobra.Command {
	var devices bool
	cmd := &cobra.Command{
		Use: "export FORK DIR|-", Short: "Write a fork's files, as it is now, to a new directory or as a tar stream",
		Example:           "  tine fork export try /srv/result",
		Args:              exactly("FORK", "DIR"),
		ValidArgsFunction: a.completeArgs(1, "fork"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withFork(cmd, args[0], func(w sidecar.Workspace) error {
				return a.export(args[1], devices, func(r sidecar.ExportRequest, out io.Writer) error {
					return w.Export(cmd.Context(), r, out)
				})
			})
		},
	}
	cmd.Flags().BoolVar(&devices, "devices", false, "make device nodes, which are left out otherwise")
	return cmd
}

func (a *app) forkExec() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "exec FORK [flags] -- PROGRAM [ARG]...", Short: "Run a program in an existing fork",
		Long: `exec runs PROGRAM in a fork as 'tine run' does, isolation, record and exit status included. The fork stays, and is
sealed only when --seal asks for that. It works beside a mount of the fork and beside other programs in it.`,
		Example:           "  tine fork exec try -- make test",
		Annotations:       map[string]string{"status": "program"},
		ValidArgsFunction: a.completeArgs(1, "fork"),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{"missing argument: FORK"}
			}
			return nil
		},
	}
	f.register(cmd, sidecar.SealNever)
	cmd.Flags().SetInterspersed(true) // FORK stands before the flags; the program stands after --
	for _, flag := range []string{"keep"} {
		cmd.Flags().MarkHidden(flag)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at := cmd.ArgsLenAtDash()
		if at != 1 || len(args) < 2 {
			return &usageError{"give FORK, flags, then -- and PROGRAM"}
		}
		r, err := f.request(a, args[1:])
		if err != nil {
			return err
		}
		r.Fork, r.Keep = args[0], true
		return a.runProgram(cmd, &f, r)
	}
	return cmd
}

func (a *app) forkRm() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "rm FORK...", Short: "Remove forks and all that only they hold", Aliases: []string{"remove"},
		Long:              `rm removes forks for good. One that is served is refused, unless --force ends the service first.`,
		Example:           "  tine fork rm try",
		Args:              atLeastOne("FORK"),
		ValidArgsFunction: a.completeArgs(100, "fork"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			h, err := a.host(false)
			if err != nil {
				return err
			}
			defer closing(h, &err)
			return a.removeEach(args, func(ref string) (string, error) { return h.RemoveFork(cmd.Context(), ref, force) })
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "unmount it where it is mounted")
	return cmd
}
