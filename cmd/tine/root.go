package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// app is one invocation: its streams and the flags that every command has.
type app struct {
	streams
	store     string
	socket    string
	json      bool
	logLevel  string
	logFormat string

	printed bool // a JSON document is out, so an error must not add a second one
}

// execute runs one command line and returns the exit status.
func execute(args []string, s streams) int {
	a := &app{streams: s}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" { // a shell that it doesn't know is a mistake, not a wish for help
			cmd.Args, cmd.RunE = unknownCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return statusDone
	}
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.status
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	status := a.fail(cmd, err)
	if cmd != nil && cmd.Annotations["status"] == "program" && status != statusUsage {
		return statusRunFailed
	}
	return status
}

// errInterrupted is what a command fails with that a signal has ended.
var errInterrupted error = interrupted{}

type interrupted struct{}

func (interrupted) Error() string        { return "interrupted; nothing was published" }
func (interrupted) Is(target error) bool { return target == context.Canceled }

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "tine",
		Short: "Fork a repository, run a program in the fork, keep exactly what it did",
		Long: `tine gives a program a private, writable view of a repository at one commit, tells afterwards exactly what the
program changed, and seals that into a checkpoint that never changes again.`,
		Example: `  tine run -- make test              run in a fork of this repository's HEAD
  C=$(tine import git . | jq -r .checkpoint)
  tine fork create $C --name try     a fork to mount, change, diff and seal
  tine mount try /mnt/try`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			return unknownCommand(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := exclusive(cmd); err != nil {
				return err
			}
			return a.startLog()
		},
	}
	// A command that holds others is used with one of them, in the words that the others' usage has.
	root.SetUsageTemplate(strings.NewReplacer("{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", "[command]", "COMMAND").
		Replace(root.UsageTemplate()))
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{flagMessage(err)} })
	f := root.PersistentFlags()
	f.StringVar(&a.store, "store", defaultStore(), "keep everything in `DIR` (TINE_STORE)")
	f.StringVar(&a.socket, "socket", defaultSocket(), "the sidecar's `SOCKET`, used when it listens (TINE_SOCKET)")
	f.BoolVar(&a.json, "json", false, "print one JSON document (see 'tine docs json')")
	f.StringVar(&a.logLevel, "log-level", "warn", "`LEVEL`: debug, info, warn or error")
	f.StringVar(&a.logFormat, "log-format", "text", "`FORMAT`: text or json")
	complete(root, "log-level", "debug", "info", "warn", "error")
	complete(root, "log-format", "text", "json")
	root.AddGroup(
		&cobra.Group{ID: "checkpoints", Title: "Checkpoints:"},
		&cobra.Group{ID: "forks", Title: "Forks:"},
		&cobra.Group{ID: "runs", Title: "Runs:"},
		&cobra.Group{ID: "host", Title: "Host:"},
	)
	root.SetHelpCommandGroupID("host")
	root.SetCompletionCommandGroupID("host")
	root.AddCommand(a.commands()...)
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Example = "  tine help fork create"
			cmd.Args = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err != nil {
					return &usageError{err.Error()}
				}
				return unknownCommand(found, rest)
			}
		}
	}
	return root
}

// flagMessage says what a number's flag takes, instead of which function could not parse it.
func flagMessage(err error) string {
	message, parser, ok := strings.Cut(err.Error(), "strconv.Parse")
	switch {
	case !ok:
		return message
	case strings.HasPrefix(parser, "Int"):
		return message + "give a whole number"
	case strings.HasPrefix(parser, "Float"):
		return message + "give a number"
	default:
		return message + "give true or false"
	}
}

// exclusive finds flags that were given together and exclude each other.
func exclusive(cmd *cobra.Command) error {
	err := cmd.ValidateFlagGroups()
	if err == nil {
		return nil
	}
	message := err.Error()
	if _, given, ok := strings.Cut(message, "; ["); ok {
		given, _, _ = strings.Cut(given, "]")
		message = "give only one of --" + strings.Join(strings.Fields(given), ", --")
	}
	return &usageError{message}
}

func complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag doesn't exist: a mistake in this package
	}
}

// group makes a command that only holds others.
func group(use, short, groupID string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, GroupID: groupID,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(commands...)
	return cmd
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	message := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		message += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return &usageError{message}
}

// exactly is cobra.ExactArgs with a message that names what is missing.
func exactly(names ...string) cobra.PositionalArgs { return between(len(names), names...) }

// between takes at least least and at most all of the named arguments.
func between(least int, names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least {
			return &usageError{"missing argument: " + names[len(args)]}
		}
		if len(args) > len(names) {
			return &usageError{fmt.Sprintf("unexpected argument %q", args[len(names)])}
		}
		return nil
	}
}

func defaultStore() string {
	if s := os.Getenv("TINE_STORE"); s != "" {
		return s
	}
	if os.Geteuid() == 0 {
		return "/var/lib/tine"
	}
	if s := os.Getenv("XDG_DATA_HOME"); s != "" {
		return filepath.Join(s, "tine")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "" // said when a command needs the store
	}
	return filepath.Join(home, ".local", "share", "tine")
}

func defaultSocket() string {
	if s := os.Getenv("TINE_SOCKET"); s != "" {
		return s
	}
	if os.Geteuid() == 0 {
		return "/run/tine/host.sock"
	}
	if s := os.Getenv("XDG_RUNTIME_DIR"); s != "" {
		return filepath.Join(s, "tine", "host.sock")
	}
	return ""
}

func (a *app) startLog() error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return &usageError{fmt.Sprintf("--log-level %q: use debug, info, warn or error", a.logLevel)}
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler
	switch a.logFormat {
	case "text":
		handler = slog.NewTextHandler(a.err, options)
	case "json":
		handler = slog.NewJSONHandler(a.err, options)
	default:
		return &usageError{fmt.Sprintf("--log-format %q: use text or json", a.logFormat)}
	}
	slog.SetDefault(slog.New(handler))
	return nil
}

// closing runs c's Close and keeps the first error.
func closing(c io.Closer, err *error) {
	if e := c.Close(); e != nil && *err == nil {
		*err = e
	}
}
