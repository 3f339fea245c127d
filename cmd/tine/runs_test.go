package main

import "testing"

// A list shows what was run on one line, without the quoting that exactness needs, and without driving the terminal.
func TestProgramsOnOneLine(t *testing.T) {
	for want, args := range map[string][]string{
		"make test":             {"make", "test"},
		`sh -c echo "a"; b`:     {"sh", "-c", "echo \"a\";\n\t  b\n"},
		"printf [31m caf\u00e9": {"printf", "\x1b[31m", "caf\u00e9"},
	} {
		if got := oneLine(args); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
}
