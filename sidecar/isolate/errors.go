package isolate

import (
	"errors"
	"fmt"
)

// SpecError is a Spec that makes no sense.
type SpecError struct{ Field, Problem string }

func (e *SpecError) Error() string { return "isolate: " + e.Field + ": " + e.Problem }

// UnsupportedError is something asked for that this host can't do. Nothing was started.
type UnsupportedError struct {
	What   string // "memory limit", "isolation", …
	Reason string
}

func (e *UnsupportedError) Error() string { return e.What + " can't be enforced here: " + e.Reason }

// RefusedError is a rule of the contract that forbids the run. Nothing was started.
type RefusedError struct{ Rule, Reason string }

func (e *RefusedError) Error() string { return fmt.Sprintf("refused (%s): %s", e.Rule, e.Reason) }

// StartError is a program that can't be executed: Code is 127 when it isn't found, 126 when it can't be run.
type StartError struct {
	Program string
	Code    int
	Reason  string
}

func (e *StartError) Error() string { return e.Program + ": " + e.Reason }

// SetupError is a step of building the view that failed.
type SetupError struct {
	Step   string
	Reason string
}

func (e *SetupError) Error() string { return "isolate: " + e.Step + ": " + e.Reason }

// ErrEnded is returned for a process that is no more.
var ErrEnded = errors.New("isolate: the program has ended")

// ExitCode is the status with which a command ends that failed to start a run because of err: 126, 127 or 125.
func ExitCode(err error) int {
	var s *StartError
	if errors.As(err, &s) {
		return s.Code
	}
	return 125
}

// failure carries an error of this package from init to the caller.
type failure struct {
	Kind   string `json:"kind"`
	A      string `json:"a"`
	B      string `json:"b"`
	Status int    `json:"status"`
}

func encodeFailure(err error) *failure {
	f := failureOf(err)
	f.A, f.B = clip(f.A), clip(f.B)
	return f
}

// clip keeps a text short enough for a message: a program's name may be as long as an argument.
func clip(s string) string {
	const most = 8 << 10
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

func failureOf(err error) *failure {
	var (
		unsupported *UnsupportedError
		refused     *RefusedError
		start       *StartError
		spec        *SpecError
		setup       *SetupError
	)
	switch {
	case errors.As(err, &unsupported):
		return &failure{Kind: "unsupported", A: unsupported.What, B: unsupported.Reason}
	case errors.As(err, &refused):
		return &failure{Kind: "refused", A: refused.Rule, B: refused.Reason}
	case errors.As(err, &start):
		return &failure{Kind: "start", A: start.Program, B: start.Reason, Status: start.Code}
	case errors.As(err, &spec):
		return &failure{Kind: "spec", A: spec.Field, B: spec.Problem}
	case errors.As(err, &setup):
		return &failure{Kind: "setup", A: setup.Step, B: setup.Reason}
	}
	return &failure{Kind: "setup", A: "init", B: err.Error()}
}

func (f *failure) decode() error {
	switch f.Kind {
	case "unsupported":
		return &UnsupportedError{What: f.A, Reason: f.B}
	case "refused":
		return &RefusedError{Rule: f.A, Reason: f.B}
	case "start":
		return &StartError{Program: f.A, Reason: f.B, Code: f.Status}
	case "spec":
		return &SpecError{Field: f.A, Problem: f.B}
	}
	return &SetupError{Step: f.A, Reason: f.B}
}

func setupErr(step string, err error) error {
	if err == nil {
		return nil
	}
	switch err.(type) {
	case *UnsupportedError, *RefusedError, *StartError, *SpecError, *SetupError:
		return err
	}
	return &SetupError{Step: step, Reason: err.Error()}
}
