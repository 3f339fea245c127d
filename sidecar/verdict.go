package sidecar

import (
	"errors"
	"strings"
	"unicode"

	"tine/sidecar/isolate"
)

// Class says what a failure means to who called.
type Class string

const (
	Failed  Class = "failed"
	Usage   Class = "usage"   // the request makes no sense
	Refused Class = "refused" // by a rule; nothing was changed
	Pending Class = "pending" // done or failed, and a clean-up is still to come
)

// Verdict is the inert form of an error (C4): what programs, agents and records may see of it.
type Verdict struct {
	Class Class
	// Code is a stable word; Rule the clause that refused or "".
	Code, Rule string
	// Summary has at most 200 characters, no host path and no file content.
	Summary string
	// Token names a pending clean-up, "" where there is none.
	Token string
}

// condition is one row of the table that gives errors their words.
type condition struct {
	name    string // the Go name of the sentinel or type, "package.Name": the table's test walks all that exist
	is      func(error) bool
	class   Class
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

// Judge finds an error's words: its own where it brings them (Refusal, PendingError, RemoteError), else the first row
// of the table that matches. err is not nil.
func Judge(err error) Verdict {
	var pending *PendingError
	if errors.As(err, &pending) {
		v := Verdict{Class: Pending, Code: "cleanup_pending", Summary: "done, but a clean-up is pending"}
		if pending.Err != nil {
			v = Judge(pending.Err)
			v.Class = Pending
		}
		v.Token = pending.Token
		return v
	}
	var remote *RemoteError
	if errors.As(err, &remote) {
		return remote.Verdict
	}
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return Verdict{Class: Refused, Code: refusal.Code, Rule: refusal.Rule, Summary: Inert(refusal.Summary)}
	}
	var isolation *isolate.RefusedError
	if errors.As(err, &isolation) {
		return Verdict{Class: Refused, Code: "isolation", Rule: isolation.Rule, Summary: "the isolation of runs forbids this"}
	}
	for _, c := range conditions {
		if c.is(err) {
			return Verdict{Class: c.class, Code: c.code, Rule: c.rule, Summary: c.summary}
		}
	}
	return Verdict{Class: Failed, Code: "failed", Summary: "the command failed; the full message went to standard error"}
}

// Inert cuts a summary to what C4 allows: 200 characters, one line, nothing that drives a terminal.
func Inert(s string) string {
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
