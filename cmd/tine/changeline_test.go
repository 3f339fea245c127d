package main

import (
	"slices"
	"strings"
	"testing"

	"tine/sidecar"
)

func dirChange(status, path string, inode uint64) sidecar.Change {
	c := sidecar.Change{Status: status, Path: path, Kind: "directory", Inode: inode}
	if status != "A" {
		c.OldMode = "040755"
	}
	if status != "D" {
		c.Mode = "040755"
	}
	return c
}

func fileChange(status, path, from string, what ...string) sidecar.Change {
	return sidecar.Change{Status: status, Path: path, From: from, Kind: "file", What: what, OldMode: "100644", Mode: "100755"}
}

func TestFoldedLines(t *testing.T) {
	for _, c := range []struct {
		name    string
		all     bool
		changes []sidecar.Change
		want    string
	}{
		{"a renamed directory is one line, with what went along", false, []sidecar.Change{
			dirChange("A", "new", 5), dirChange("A", "new/in", 6), fileChange("R", "new/a", "old/a"), fileChange("R", "new/in/b", "old/in/b"),
			fileChange("R", "new/edited", "old/edited", "content"), fileChange("R", "elsewhere", "old/c"), fileChange("A", "new/added", ""),
			dirChange("D", "old", 5), dirChange("D", "old/in", 6), fileChange("D", "old/gone", ""),
		}, `R  old/ -> new/  (with 2 files)
R  old/edited -> new/edited
R  old/c -> elsewhere
A  new/added
D  old/gone`},
		{"a deleted directory takes its files along, another one with its name's beginning doesn't", false, []sidecar.Change{
			dirChange("D", "lib", 5), fileChange("D", "lib/a", ""), dirChange("D", "lib/sub", 6), fileChange("D", "lib/sub/b", ""), fileChange("D", "library", ""),
		}, `D  lib/  (with 2 files)
D  library`},
		{"an added one is listed", false, []sidecar.Change{dirChange("A", "new", 5), fileChange("A", "new/a", "")}, `A  new/
A  new/a`},
		{"unless there is too much", true, []sidecar.Change{dirChange("A", "new", 5), fileChange("A", "new/a", ""), fileChange("A", "b", "")}, `A  new/  (with 1 file)
A  b`},
		{"a directory that became a file", false, []sidecar.Change{
			{Status: "T", Path: "d", Kind: "file", OldMode: "040755", Mode: "100644", What: []string{"mode", "times"}}, fileChange("D", "d/a", ""),
		}, `T  d  (directory -> file, with 1 file)`},
		{"what differs", false, []sidecar.Change{
			fileChange("M", "a", "", "mode"), fileChange("M", "b", "", "content", "times"), fileChange("M", "c", "", "times"), fileChange("M", "d", "", "owner", "xattrs"),
			fileChange("H", "e", "a"), {Status: "M", Path: ".git", Kind: "directory", Files: 3},
			{Status: "M", Path: ".git", Kind: "directory", Files: 1, What: []string{"times"}},
		}, `M  a  (mode 100644 -> 100755)
M  b
M  c  (times)
M  d  (owner, xattrs)
A  e  (link to a)
…  .git/  3 changes
…  .git/  1 change (times)`},
	} {
		var lines []string
		for _, l := range folded(c.changes, c.all) {
			lines = append(lines, l.text(false))
		}
		if want := strings.Split(c.want, "\n"); !slices.Equal(lines, want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, strings.Join(lines, "\n"), c.want)
		}
	}
}
