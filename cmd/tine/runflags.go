package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tine/sidecar"
)

// runFlags are the flags of everything that starts a program: run and fork exec.
type runFlags struct {
	workdir, user, network  string
	env                     []string
	memory                  sizeValue
	cpus                    float64
	pids, deadline          int64
	writableHost, keep, pin bool
	seal, name              string
	force, quiet, noTTY     bool
	labels                  []string
	runtime                 string
	retainUntil             string
	failOnPending           bool
}

func (f *runFlags) register(cmd *cobra.Command, seal sidecar.SealPolicy) {
	s := cmd.Flags()
	s.SetInterspersed(false) // what follows the program's name is the program's
	s.StringVar(&f.workdir, "workdir", "", "start in `DIR`, absolute or below /workspace (default /workspace)")
	s.StringArrayVar(&f.env, "env", nil, "set a variable: `K=V`, or K to pass on your own value (repeatable)")
	s.StringVar(&f.user, "user", "", "run as `USER` or USER:GROUP, names or numbers (default you)")
	s.Int64Var(&f.deadline, "deadline-seconds", 0, "stop the program after `N` seconds, with status 124")
	s.Var(&f.memory, "memory", "limit its memory: `BYTES`, or a number with K, M or G")
	s.Float64Var(&f.cpus, "cpus", 0, "limit its time to that of `N` processors")
	s.Int64Var(&f.pids, "pids", 0, "limit its processes and threads to `N`, and up to 16 of tine's own beside them")
	s.StringVar(&f.network, "network", "host", "`NET`: host or none")
	s.BoolVar(&f.writableHost, "writable-host", false, "no isolation: the program sees and may change the host")
	s.StringVar(&f.seal, "seal", string(seal), "`WHEN` to seal: changed (if something did), always or never")
	s.StringVar(&f.name, "name", "", "`NAME` the run, its fork if that is kept, and the sealed checkpoint")
	s.BoolVar(&f.force, "force", false, "take the name away from what has it")
	s.BoolVar(&f.keep, "keep", false, "keep the fork")
	s.BoolVar(&f.pin, "pin", false, "keep the run's checkpoint pinned afterwards")
	s.StringVar(&f.retainUntil, "retain-until", "", "keep it pinned until `TIME` (RFC 3339)")
	s.StringArrayVar(&f.labels, "label", nil, "label the run, `K=V` (repeatable)")
	s.StringVar(&f.runtime, "runtime", "local", "`RUNTIME`: local, namespaces of this host")
	s.BoolVar(&f.failOnPending, "fail-on-pending", false, "exit with 125 if a clean-up is pending")
	s.BoolVar(&f.noTTY, "no-tty", false, "give the program no terminal of its own")
	s.BoolVarP(&f.quiet, "quiet", "q", false, "no summary")
	complete(cmd, "network", "host", "none")
	complete(cmd, "seal", "changed", "always", "never")
	complete(cmd, "runtime", "local")
}

// request turns the flags into a request. The program's streams are the command's own; with --json its output goes to
// standard error, since the record is the result.
func (f *runFlags) request(a *app, args []string) (*sidecar.RunRequest, error) {
	labels, err := parseLabels(f.labels)
	if err != nil {
		return nil, err
	}
	if f.runtime != "local" {
		return nil, &usageError{fmt.Sprintf("--runtime %q: this tine has the runtime local", f.runtime)}
	}
	for flag, n := range map[string]float64{"--cpus": f.cpus, "--pids": float64(f.pids), "--deadline-seconds": float64(f.deadline)} {
		if n < 0 {
			return nil, &usageError{flag + ": a limit is a positive number"}
		}
	}
	r := &sidecar.RunRequest{
		Args: args, Workdir: f.workdir, Env: f.env, User: f.user,
		Deadline: time.Duration(f.deadline) * time.Second, Memory: int64(f.memory), CPUs: f.cpus, PIDs: f.pids, Network: f.network,
		WritableHost: f.writableHost, Seal: sidecar.SealPolicy(f.seal), Name: f.name, Force: f.force, Labels: labels, Keep: f.keep, Pin: f.pin,
		Stdin: a.in, Stdout: a.out, Stderr: a.err,
	}
	if f.retainUntil != "" {
		until, err := time.Parse(time.RFC3339, f.retainUntil)
		if err != nil {
			return nil, &usageError{fmt.Sprintf("--retain-until %q: give a time such as 2026-01-31T12:00:00Z", f.retainUntil)}
		}
		r.Pin, r.Retain = true, &until
	}
	if a.json {
		r.Stdout = a.err
	} else if in, ok := a.in.(*os.File); ok && !f.noTTY && a.outTerminal {
		r.TTY = term.IsTerminal(int(in.Fd()))
	}
	return r, nil
}

// sizeValue is a flag that takes bytes with units.
type sizeValue int64

func (v *sizeValue) String() string {
	if *v == 0 {
		return ""
	}
	return size(int64(*v))
}

func (v *sizeValue) Type() string { return "BYTES" }

func (v *sizeValue) Set(s string) error {
	n, err := parseSize(s)
	if err == nil && n <= 0 {
		err = fmt.Errorf("%q: a limit is positive", s)
	}
	*v = sizeValue(n)
	return err
}
