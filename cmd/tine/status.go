package main

import (
	"context"
	"errors"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"tine/sidecar"
)

// Exit statuses of every command but run, which exits as its program did.
const (
	statusDone    = 0
	statusFailed  = 1
	statusUsage   = 2
	statusRefused = 3
	statusPending = 4
	// statusRunFailed is run's status when tine itself failed or refused.
	statusRunFailed = 125
)

// usageError is a command line that can't be understood.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

// exitError ends the command with a status and without a message: everything was said already.
type exitError struct{ status int }

func (e *exitError) Error() string { return "" }

// verdict is what a failure means to callers.
type verdict struct {
	status int
	body   errorBody
}

// condition is one row of the table that maps errors to statuses and words. A nil is matches nothing by value.
type condition struct {
	name    string // the Go name of the sentinel or type, "package.Name"; the table's test walks them
	is      func(error) bool
	status  int
	code    string
	rule    string
	summary string
}

func sentinel(err error) func(error) bool {
	return func(e error) bool { return errors.Is(e, err) }
}

func typed[T error]() func(error) bool {
	return func(e error) bool {
		var t T
		return errors.As(e, &t)
	}
}

// verdictOf finds the first row that matches; refusals and pending clean-ups carry their own words.
func verdictOf(err error) verdict {
	var pending *sidecar.PendingError
	if errors.As(err, &pending) {
		v := verdict{status: statusPending, body: errorBody{Code: "cleanup_pending", Summary: "done, but a clean-up is pending"}}
		if pending.Err != nil {
			v.body = verdictOf(pending.Err).body
		}
		v.body.Token = pending.Token
		return v
	}
	var usage *usageError
	if errors.As(err, &usage) {
		return verdict{statusUsage, errorBody{Code: "usage", Summary: inert(usage.message)}}
	}
	var refusal *sidecar.Refusal
	if errors.As(err, &refusal) {
		return verdict{statusRefused, errorBody{Code: refusal.Code, Rule: refusal.Rule, Summary: inert(refusal.Summary)}}
	}
	for _, c := range conditions {
		if c.is(err) {
			return verdict{c.status, errorBody{Code: c.code, Rule: c.rule, Summary: c.summary}}
		}
	}
	return verdict{statusFailed, errorBody{Code: "failed", Summary: "the command failed; the message on standard error says why"}}
}

// inert cuts a summary to what C4 allows: 200 characters, one line, nothing that drives a terminal.
func inert(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 200 {
		s = string(r[:199]) + "…"
	}
	return s
}

// The table. Order matters: what says most about a failure stands first, errnos stand last.
var conditions = []condition{
	{"sidecar.AmbiguousError", typed[*sidecar.AmbiguousError](), statusFailed, "ambiguous", "", "the shortened id stands for several things"},
	{"sidecar.ErrNotFound", sentinel(sidecar.ErrNotFound), statusFailed, "not_found", "", "nothing has that id or name"},

	{"context.Canceled", sentinel(context.Canceled), statusFailed, "interrupted", "", "interrupted"},
	{"context.DeadlineExceeded", sentinel(context.DeadlineExceeded), statusFailed, "deadline", "", "the deadline passed"},
	{"unix.ENOSPC", sentinel(unix.ENOSPC), statusFailed, "no_space", "", "no space is left where the store lies"},
	{"unix.EDQUOT", sentinel(unix.EDQUOT), statusFailed, "no_space", "", "a limit on space is reached"},
	{"unix.EROFS", sentinel(unix.EROFS), statusFailed, "read_only", "", "the file system is read-only"},
	{"unix.EACCES", sentinel(unix.EACCES), statusFailed, "permission", "", "permission denied"},
	{"unix.EPERM", sentinel(unix.EPERM), statusFailed, "permission", "", "operation not permitted"},
	{"unix.EIO", sentinel(unix.EIO), statusFailed, "io", "", "something could not be read or written"},
	{"unix.ENOENT", sentinel(unix.ENOENT), statusFailed, "no_such_file", "", "no such file or directory"},
}
