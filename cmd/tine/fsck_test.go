package main

import (
	"strings"
	"testing"

	"tine/sidecar"
)

// A repository that is gone is a fault for each content that only it has; people see some of them, and how many.
func TestFsckDoesNotFloodTheTerminal(t *testing.T) {
	doc := &sidecar.FsckReport{Checkpoints: 1, Contents: 996}
	for range 996 {
		doc.Faults = append(doc.Faults, "content is in no source")
	}
	var out strings.Builder
	a := &app{}
	if err := a.showFsck(&out, doc); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != faultLines+2 || lines[faultLines] != "… and 976 more faults; --json lists them all" || !strings.HasSuffix(lines[faultLines+1], ": 996 faults") {
		t.Errorf("%q", lines)
	}
}
