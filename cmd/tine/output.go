package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// printDocument gives the command's result: doc as one JSON document, or what people wants to show to people.
func (a *app) printDocument(doc any, people func(io.Writer) error) error {
	if a.json {
		return a.printJSON(doc)
	}
	return people(a.out)
}

// printResult is printDocument for the commands whose result the next command of a script needs (import, fork create,
// seal): into a pipe or a file they write the JSON document without being asked.
func (a *app) printResult(doc any, people func(io.Writer) error) error {
	if a.json || !a.outTerminal {
		return a.printJSON(doc)
	}
	return people(a.out)
}

func (a *app) printJSON(doc any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	a.printed = true
	return nil
}

// note tells people something on standard error.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.err, "tine: "+format+"\n", args...)
}

// warn is note, marked as a warning.
func (a *app) warn(format string, args ...any) {
	fmt.Fprintf(a.err, "tine: %s "+format+"\n", append([]any{paint(a.errColour, yellow, "warning:")}, args...)...)
}

// errorDocument is what --json prints when a command fails.
type errorDocument struct {
	Schema string    `json:"schema"`
	Error  errorBody `json:"error"`
}

type errorBody struct {
	Code    string `json:"code" doc:"a stable word for programs"`
	Rule    string `json:"rule" doc:"the rule that refused, empty when none did"`
	Summary string `json:"summary" doc:"at most 200 characters, without host paths or file contents"`
	Token   string `json:"token" doc:"names a pending clean-up, empty when there is none"`
}

// fail reports err and returns the exit status.
func (a *app) fail(cmd *cobra.Command, err error) int {
	status, body := verdictOf(err)
	if body.Code == "no_fuse" && os.Geteuid() != 0 {
		err = fmt.Errorf("%w; forks are mounted by root", err)
	}
	if a.json && !a.printed {
		a.printJSON(errorDocument{Schema: "tine.error/v1", Error: body})
	}
	message := err.Error()
	if status == statusRefused && !strings.Contains(message, "refused (") {
		message = strings.TrimPrefix(message, "refused: ")
		message = fmt.Sprintf("refused (%s): %s", body.Rule, message)
	}
	fmt.Fprintf(a.err, "tine: %s\n", strings.ReplaceAll(message, "\n", "\ntine: "))
	if status == statusUsage && cmd != nil {
		fmt.Fprintf(a.err, "Try '%s --help'.\n", cmd.CommandPath())
	}
	return status
}
