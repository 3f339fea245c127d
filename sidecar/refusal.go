package sidecar

import (
	"errors"
	"fmt"
	"strings"
)

// Refusal is a request that a rule forbids. Nothing was changed. Rule is a clause of the contracts where there is one
// ("S13", "F1"), else the name of the subject whose rules are meant ("names", "import", "serving").
type Refusal struct {
	Rule string
	// Code is the stable word for programs ("name_taken").
	Code string
	// Summary is inert (C4): at most 200 characters, no host path, no file content.
	Summary string
	// Detail is the whole story for the host's eyes, paths included; Summary where it is empty.
	Detail string
	// Remedy says what to do instead; may be empty.
	Remedy string
	Cause  error
}

func (r *Refusal) Error() string {
	what := r.Detail
	if what == "" {
		what = r.Summary
	}
	if r.Cause != nil {
		what += ": " + r.Cause.Error()
	}
	if r.Remedy != "" {
		what += "; " + r.Remedy
	}
	return fmt.Sprintf("refused (%s): %s", r.Rule, what)
}

func (r *Refusal) Unwrap() error { return r.Cause }

// ErrNotFound is wrapped by every failure to find what an id or a name stands for.
var ErrNotFound = errors.New("not found")

// NotFoundError says what kind of thing was looked for, by which id or name.
type NotFoundError struct {
	Kind string // "checkpoint", "fork", "run", missingName, missingPath, or "" for anything
	Ref  string
}

// Kinds of what has no id.
const (
	missingName = "name"
	missingPath = "path in the checkpoint"
)

func (e *NotFoundError) Error() string {
	switch e.Kind {
	case missingName:
		return fmt.Sprintf("no checkpoint has the name %q", e.Ref)
	case missingPath:
		return fmt.Sprintf("the checkpoint has no path %q", e.Ref)
	case "":
		return fmt.Sprintf("nothing here has the id or name %q", e.Ref)
	}
	message := fmt.Sprintf("no %s has the id or name %q", e.Kind, e.Ref)
	if e.Ref != "" && len(e.Ref) < minPrefix && strings.Trim(e.Ref, "0123456789abcdef") == "" {
		message += fmt.Sprintf("; shorten ids to %d digits at least", minPrefix)
	}
	return message
}

func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// AmbiguousError lists what a shortened id could stand for.
type AmbiguousError struct {
	Ref string
	IDs []string // "checkpoint 3fa9…", at most ten
}

func (e *AmbiguousError) Error() string {
	s := fmt.Sprintf("%q is the beginning of several ids:", e.Ref)
	for _, id := range e.IDs {
		s += "\n  " + id
	}
	return s
}

// PendingError says that the work ended as Err says (nil: well), and that what Token names is still to be cleaned up.
type PendingError struct {
	Token string
	What  string // what is left, inert
	Err   error
}

func (e *PendingError) Error() string {
	s := fmt.Sprintf("a clean-up is pending (%s): %s", e.Token, e.What)
	if e.Err != nil {
		s = e.Err.Error() + "; " + s
	}
	return s
}

func (e *PendingError) Unwrap() error { return e.Err }
