package main

import (
	"bytes"
	"testing"
	"time"

	"tine/sidecar"
)

// TestProgressEndsWithTheWork: nothing is painted after done, when the terminal belongs to the program that is run.
func TestProgressEndsWithTheWork(t *testing.T) {
	var screen bytes.Buffer
	a := &app{streams: streams{err: &screen, errTerminal: true}}
	report, done := a.progress()
	report(sidecar.Step{Stage: "trees"}) // of unknown length
	report(sidecar.Step{Stage: "files", Total: 10, Done: 1})
	done()
	report(sidecar.Step{Stage: "late"})
	time.Sleep(progressDelay + 300*time.Millisecond)
	if screen.Len() > 0 {
		t.Errorf("painted after the end: %q", screen.String())
	}
}
