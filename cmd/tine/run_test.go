package main

import (
	"strings"
	"testing"

	"tine/sidecar"
	"tine/sidecar/record"
)

// A fork whose server died under the run has no list of changes; "0 files changed" would be a lie.
func TestSummaryOfUnknownChanges(t *testing.T) {
	status := 0
	r := &sidecar.RunResult{Record: &record.Run{State: record.Exited, Status: &status, Systems: []record.System{{}}}, Changes: [][]sidecar.Change{nil}}
	for failed, want := range map[bool]string{true: "tine: exited 0 after 0 µs, what it changed is not known\n", false: "tine: exited 0 after 0 µs, 0 files changed\n"} {
		var out strings.Builder
		a := &app{streams: streams{err: &out}}
		a.runSummary(r, failed)
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}
