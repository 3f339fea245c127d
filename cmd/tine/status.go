package main

import (
	"errors"

	"tine/sidecar"
)

// Exit statuses of every command but run and fork exec, which exit as their program did.
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

var statuses = map[sidecar.Class]int{
	sidecar.Failed: statusFailed, sidecar.Usage: statusUsage, sidecar.Refused: statusRefused, sidecar.Pending: statusPending,
}

// verdictOf gives an error's exit status and its inert words.
func verdictOf(err error) (int, errorBody) {
	var usage *usageError
	if errors.As(err, &usage) {
		return statusUsage, errorBody{Code: "usage", Summary: sidecar.Inert(usage.message)}
	}
	v := sidecar.Judge(err)
	return statuses[v.Class], errorBody{Code: v.Code, Rule: v.Rule, Summary: v.Summary, Token: v.Token}
}
