package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"tine/sidecar"
	"tine/sidecar/isolate"
	"tine/sidecar/record"
)

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	var checkpoint, repo, rev string
	cmd := &cobra.Command{
		Use: "run [SOURCE] [flags] -- PROGRAM [ARG]...", Short: "Run a program in a fork and tell what it changed", GroupID: "runs",
		Long: `run gives PROGRAM a private, writable view of a commit or a checkpoint at /workspace. The rest of the host is
read-only to it, its home is a private copy, and the source repository and tine's store are out of its reach. When it
ends, a summary on standard error says exactly what it changed, and that is sealed into a new checkpoint.

Without a SOURCE it works on HEAD of the repository of the current directory. Uncommitted changes are not taken along:
import those with 'tine import git . --dirty' and use --checkpoint.

run exits as PROGRAM did: with its status, 128+n when signal n ended it, 124 at its deadline, 127 when it was not found,
126 when it could not be started, and 125 when tine itself failed or refused. Of your environment it gets PATH, LANG and
the like, and what you name with --env.`,
		Example: `  tine run -- make test
  tine run --repo ~/src/linux --rev v6.12 --user nobody --memory 8G -- make -j8
  tine run --checkpoint base --network none --deadline-seconds 600 --name try1 -- ./agent.sh
  tine run --json --keep -- true | jq -r .systems[0].fork`,
		Annotations: map[string]string{"status": "program"},
		Args:        program,
	}
	f.register(cmd, sidecar.SealChanged)
	cmd.Flags().StringVar(&checkpoint, "checkpoint", "", "work on `CHECKPOINT`: id, name or git:PATH@REV")
	cmd.Flags().StringVar(&repo, "repo", "", "work on the repository in `DIR` (default the current directory's)")
	cmd.Flags().StringVar(&rev, "rev", "", "`REV` of the repository (default HEAD)")
	a.completeCheckpoints(cmd, "checkpoint")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := f.request(a, args)
		if err != nil {
			return err
		}
		r.Checkpoint, r.Repo, r.Rev = checkpoint, repo, rev
		return a.runProgram(cmd, &f, r)
	}
	return cmd
}

// program wants at least a program's name.
func program(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return &usageError{"missing argument: PROGRAM"}
	}
	return nil
}

// runProgram runs r to its end and exits with the program's status.
func (a *app) runProgram(cmd *cobra.Command, f *runFlags, r *sidecar.RunRequest) (err error) {
	h, err := a.host(r.Fork == "")
	if err != nil {
		return err
	}
	defer closing(h, &err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(cmd.Context())) // signals end the preparation only
	defer cancel()
	signals, passing := a.passSignals(cancel)
	r.Signals = signals
	report, done := a.progress()
	r.Progress = report
	r.Started = func() { done(); passing() }
	result, err := h.Run(ctx, r)
	done()
	var spec *isolate.SpecError
	if errors.As(err, &spec) && spec.Field == "Dir" {
		err = &usageError{"--workdir: " + spec.Problem}
	}
	if result == nil {
		return err
	}
	if a.json {
		if err := a.printJSON(result.Record); err != nil {
			return err
		}
	}
	if !f.quiet {
		a.runSummary(result, err != nil)
	}
	status := statusRunFailed
	if result.Record.Status != nil {
		status = *result.Record.Status
	}
	if err != nil {
		a.fail(cmd, err)
		var pending *sidecar.PendingError
		onlyPending := errors.As(err, &pending) && pending.Err == nil
		if result.Record.State != record.Failed && !onlyPending || onlyPending && f.failOnPending {
			status = statusRunFailed // the program ended, and tine failed at what comes after
		}
	}
	return &exitError{status}
}

// passSignals takes over what ends other commands. Until passing is called a signal cancels the preparation; from then on
// signals are the program's.
func (a *app) passSignals(cancel func()) (signals <-chan unix.Signal, passing func()) {
	in := make(chan os.Signal, 8)
	out := make(chan unix.Signal, 8)
	signal.Notify(in, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	var started atomic.Bool
	go func() {
		for s := range in {
			if !started.Load() {
				cancel()
				continue
			}
			select {
			case out <- s.(unix.Signal):
			default: // more than the program can take
			}
		}
	}()
	return out, func() { started.Store(true) }
}

// summaryLines is how many changes the summary of a run lists before it points to the command that lists all.
const summaryLines = 60

// runSummary tells how the program ended and what it changed. failed is whether tine failed afterwards: then there may be
// no list of changes, which is not the same as none.
func (a *app) runSummary(result *sidecar.RunResult, failed bool) {
	r := result.Record
	var b strings.Builder
	head := func(format string, args ...any) { fmt.Fprintf(&b, "tine: "+format+"\n", args...) }
	how := ""
	switch r.State {
	case record.Exited:
		how = fmt.Sprintf("exited %d", *r.Status)
	case record.Killed:
		how = fmt.Sprintf("killed by signal %d", *r.Status-128)
	case record.Deadline:
		how = "stopped at its deadline"
	default:
		return // the error says it
	}
	if r.OOMKilled {
		how += " (the memory limit killed a process)"
	}
	sgr := green
	if *r.Status != 0 {
		sgr = red
	}
	for _, w := range r.Warnings {
		head("%s %s", paint(a.errColour, yellow, "warning:"), w)
	}
	for i, s := range r.Systems {
		if i == 0 {
			changed := count(int64(s.ChangedFiles), "file") + " changed"
			if result.Joined {
				changed = "the fork has " + changed
			}
			if failed && result.Changes[i] == nil {
				changed = "what it changed is not known"
			}
			if s.ReadErrors > 0 {
				changed += ", " + paint(a.errColour, red, count(int64(s.ReadErrors), "file")+" could not be read (I/O error)")
			}
			head("%s after %s, %s", paint(a.errColour, sgr, how), seconds(r.Seconds), changed)
		} else {
			head("%s: %s changed", s.Name, count(int64(s.ChangedFiles), "file"))
		}
		lines := folded(result.Changes[i], false)
		if len(lines) > summaryLines {
			lines = folded(result.Changes[i], true)
		}
		for j, l := range lines {
			if j == summaryLines {
				fmt.Fprintf(&b, "  … and %s more lines\n", grouped(int64(len(lines)-j)))
				break
			}
			b.WriteString("  " + l.text(a.errColour) + "\n")
		}
		switch {
		case s.Sealed != nil && *s.Sealed == s.Checkpoint:
			head("sealed checkpoint %s: the base itself, nothing changed", short(*s.Sealed))
		case s.Sealed != nil:
			name := ""
			if r.Name != "" {
				name = " as " + r.Name
			}
			head("sealed checkpoint %s%s, over %s, frozen %s", short(*s.Sealed), name, short(s.Checkpoint), seconds(float64(r.FrozenUS)/1e6))
		}
		if r.Kept && !result.Joined {
			head("fork %s kept", short(s.Fork))
		}
	}
	io.WriteString(a.err, b.String())
}
