package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// clauses that must each be named by a test or a testscript. The list grows with the project.
var clauses = strings.Fields("O1 O2 O3 O4 O5 O6 L1 L2 L3 L4 S11 S13")

// TestEveryClauseHasATest: a clause without a test is not done.
func TestEveryClauseHasATest(t *testing.T) {
	found := map[string]string{}
	name := regexp.MustCompile(`(?:Test|_|\b)([A-Z]\d+[a-z]?)(?:_|\b)`)
	err := filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, "_test.go") && !strings.HasSuffix(p, ".txtar") && !strings.HasSuffix(p, ".txt") || strings.HasSuffix(p, "clauses_test.go") {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "func Test") && !strings.HasPrefix(strings.TrimSpace(line), "//") && !strings.HasPrefix(line, "#") {
				continue
			}
			for _, m := range name.FindAllStringSubmatch(line, -1) {
				found[m[1]] = p
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range clauses {
		if found[c] == "" {
			t.Errorf("no test names clause %s", c)
		}
	}
}
