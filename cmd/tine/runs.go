package main

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tine/sidecar"
	"tine/sidecar/record"
)

func (a *app) runsCommand() *cobra.Command {
	cmd := group("runs", "List, show and remove records of runs", "runs", a.runsLs(), a.runsShow(), a.runsRm())
	cmd.Aliases = []string{"ps"}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { // ps alone lists
		if cmd.CalledAs() == "ps" {
			return a.listRuns(nil)
		}
		return cmd.Help()
	}
	return cmd
}

func (a *app) runsLs() *cobra.Command {
	var filter []string
	cmd := &cobra.Command{
		Use: "ls", Short: "List runs, the newest first", Aliases: []string{"list"},
		Example: "  tine runs ls\n  tine ps --json | jq -r '.[].run'",
		Args:    exactly(),
		RunE:    func(*cobra.Command, []string) error { return a.listRuns(filter) },
	}
	cmd.Flags().StringArrayVar(&filter, "label", nil, "only those with the label `K=V` or K (repeatable)")
	return cmd
}

func (a *app) listRuns(filter []string) (err error) {
	h, err := a.host(false)
	if err != nil {
		return err
	}
	defer closing(h, &err)
	all, listErr := h.Runs()
	list := []*record.Run{}
	for _, r := range all {
		if selects(filter, r.Labels) {
			list = append(list, r)
		}
	}
	err = a.printDocument(list, func(w io.Writer) error {
		now := time.Now()
		t := newTable("RUN", "NAME", "STATE", ">TOOK", ">CHANGED", "CHECKPOINT", "SEALED", "STARTED", "PROGRAM")
		for _, r := range list {
			took, changed, from, to := "-", "-", "-", "-"
			if r.Ended != nil {
				took = seconds(r.Seconds)
			}
			if len(r.Systems) > 0 {
				s := r.Systems[0]
				from = short(s.Checkpoint)
				if s.Sealed != nil {
					to = short(*s.Sealed)
				}
				if r.Ended != nil {
					changed = grouped(int64(s.ChangedFiles))
				}
			}
			t.row(short(r.ID), orDash(r.Name), runState(r), took, changed, from, to, ago(r.Started, now), clip(oneLine(r.Command.Args), 40))
		}
		return t.write(w, a.outColour)
	})
	if err == nil {
		err = listErr
	}
	return err
}

// oneLine is a program's arguments as a list shows them: to be recognized, not to be exact, which show is.
func oneLine(args []string) string {
	return strings.Join(strings.Fields(sidecar.Inert(strings.Join(args, " "))), " ")
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// runState is a run's state with the status that says more.
func runState(r *record.Run) string {
	switch {
	case r.State == record.Exited && r.Status != nil:
		return "exited " + strconv.Itoa(*r.Status)
	case r.State == record.Killed && r.Status != nil:
		return "signal " + strconv.Itoa(*r.Status-128)
	default:
		return string(r.State)
	}
}

func (a *app) runsShow() *cobra.Command {
	return &cobra.Command{
		Use: "show RUN", Short: "Show the record of a run",
		Example:           "  tine runs show nightly",
		Args:              exactly("RUN"),
		ValidArgsFunction: a.completeArgs(1, "run"),
		RunE: func(_ *cobra.Command, args []string) (err error) {
			h, err := a.host(false)
			if err != nil {
				return err
			}
			defer closing(h, &err)
			r, err := h.RunRecord(args[0])
			if err != nil {
				return err
			}
			return a.printDocument(r, func(w io.Writer) error { return a.showRun(w, r) })
		},
	}
}

func (a *app) showRun(w io.Writer, r *record.Run) error {
	var p pairs
	p.add("run", r.ID)
	p.add("name", r.Name)
	p.add("program", shown(strings.Join(r.Command.Args, " ")))
	p.add("state", runState(r))
	if r.OOMKilled {
		p.add("memory", "the limit of "+size(r.Limits.Memory)+" killed a process")
	}
	if r.Error != nil {
		p.add("error", r.Error.Summary)
	}
	p.add("started", r.Started.Format(time.RFC3339))
	if r.Ended != nil {
		p.add("took", seconds(r.Seconds))
	}
	p.add("user", r.Command.User)
	p.add("directory", shown(r.Command.Dir))
	if r.Isolation != "" { // it was set up
		p.add("isolation", r.Isolation+", home "+orDash(r.Home)+", network "+orDash(r.Limits.Network))
	}
	p.add("notes", strings.Join(r.Notes, "\n"))
	p.add("warnings", strings.Join(r.Warnings, "\n"))
	p.add("labels", labelList(r.Labels))
	for _, s := range r.Systems {
		lines := []string{"at " + s.Path, "checkpoint " + s.Checkpoint, "tree       " + s.Tree}
		if s.Commit != nil {
			lines = append(lines, "commit     "+*s.Commit)
		}
		if s.Sealed != nil {
			lines = append(lines, "sealed     "+*s.Sealed)
		}
		fork := "fork       " + s.Fork
		switch {
		case r.State == record.Lost:
			fork += ", left as it was; 'tine seal --run' keeps its work"
		case r.Ended != nil && !r.Kept:
			fork += " (removed)"
		}
		if r.Ended != nil {
			fork += ", " + count(int64(s.ChangedFiles), "file") + " changed"
		}
		p.add("system "+s.Name, strings.Join(append(lines, fork), "\n"))
	}
	return p.write(w, a.outColour)
}

func (a *app) runsRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm RUN...", Short: "Remove records of ended runs, and what lost ones left behind",
		Long: `rm removes the record of a run. What it sealed is kept by a name from then on, or goes by gc. Of a run whose process
was killed, the fork is removed, too.`,
		Example:           "  tine runs rm nightly",
		Args:              atLeastOne("RUN"),
		ValidArgsFunction: a.completeArgs(100, "run"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			h, err := a.host(false)
			if err != nil {
				return err
			}
			defer closing(h, &err)
			return a.removeEach(args, func(ref string) (string, error) { return h.RemoveRun(cmd.Context(), ref) })
		},
	}
}

// inspectCommand shows whatever an id or name belongs to.
func (a *app) inspectCommand() *cobra.Command {
	return &cobra.Command{
		Use: "inspect ID", Short: "Show whatever an id or a name belongs to", GroupID: "host",
		Long:              `inspect shows the checkpoint, fork or run with an id or a name. Where several have one name it is the first of these.`,
		Example:           "  tine inspect 3fa9c1",
		Args:              exactly("ID"),
		ValidArgsFunction: a.completeArgs(1, "checkpoint", "fork", "run"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			h, err := a.host(false)
			if err != nil {
				return err
			}
			defer closing(h, &err)
			found, err := h.Inspect(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printDocument(found, func(w io.Writer) error {
				switch v := found.(type) {
				case *sidecar.Checkpoint:
					return a.showCheckpoint(w, v)
				case *sidecar.Fork:
					return a.showFork(w, v)
				case *record.Run:
					return a.showRun(w, v)
				}
				return errors.New("found something that can't be shown")
			})
		},
	}
}
