package main

import (
	"fmt"
	"strings"

	"tine/sidecar"
)

// changeLine is one line of a list of changes for people. files counts what went along with a renamed directory.
type changeLine struct {
	sidecar.Change
	files int64
}

// folded makes lines of changes. A directory that was renamed is one line, with what went along unchanged; so is one that
// was deleted; and, with all, one that was added.
func folded(changes []sidecar.Change, all bool) []changeLine {
	m := movesOf(changes)
	var lines []changeLine
	at := map[string]int{} // path of a folded directory -> its line
	for _, c := range changes {
		into := ""
		switch {
		case c.Status == "R" && len(c.What) == 0:
			into = m.along(c.From, c.Path)
		case c.Kind == "directory" && c.Status == "D" && m.to[c.Path] != "":
			continue // told where it went
		case c.Kind == "directory" && c.Status == "A" && m.from[c.Path] != "":
			if m.along(m.from[c.Path], c.Path) != "" {
				continue
			}
			c.Status, c.From = "R", m.from[c.Path]
			at[c.Path] = len(lines)
		case c.Status == "T" && isDir(c.OldMode):
			at[c.Path] = len(lines) // what was in it goes with it
		case c.Status == "D", c.Status == "A" && all:
			into = above(at, c.Path)
			if into != "" && (lines[at[into]].Status == "A") != (c.Status == "A") {
				into = ""
			}
			if into == "" && c.Kind == "directory" {
				at[c.Path] = len(lines)
			}
		}
		if i, ok := at[into]; ok && into != "" {
			if c.Kind != "directory" {
				lines[i].files++
			}
			continue
		}
		lines = append(lines, changeLine{Change: c})
	}
	return lines
}

// above is the nearest directory above path that has a line.
func above(at map[string]int, path string) string {
	for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path[:i], '/') {
		if _, ok := at[path[:i]]; ok {
			return path[:i]
		}
	}
	return ""
}

// moves are the directories that were renamed: those that are listed as deleted and as added, with one inode.
type moves struct{ to, from map[string]string }

func movesOf(changes []sidecar.Change) moves {
	gone := map[uint64]string{}
	for _, c := range changes {
		if c.Status == "D" && c.Kind == "directory" {
			gone[c.Inode] = c.Path
		}
	}
	m := moves{map[string]string{}, map[string]string{}}
	for _, c := range changes {
		if old, ok := gone[c.Inode]; ok && c.Status == "A" && c.Kind == "directory" {
			m.to[old], m.from[c.Path] = c.Path, old
		}
	}
	return m
}

// along is the new path of the outermost renamed directory above from, if going to the path to is what its renaming
// alone does; else "".
func (m moves) along(from, to string) string {
	for i := range len(from) {
		if from[i] != '/' {
			continue
		}
		if dir, ok := m.to[from[:i]]; ok {
			if dir+from[i:] == to {
				return dir
			}
			return ""
		}
	}
	return ""
}

// text shows status, path, and what else differs.
func (c changeLine) text(colour bool) string {
	if c.Files > 0 {
		what := count(int64(c.Files), "change")
		if len(c.What) == 1 && c.What[0] == "times" {
			what += " (times)"
		}
		return fmt.Sprintf("%s  %s/  %s", paint(colour, dim, "…"), c.Path, paint(colour, dim, what))
	}
	slash := ""
	if c.Kind == "directory" {
		slash = "/"
	}
	status, path := c.Status, shown(c.Path+slash)
	var notes []string
	switch status {
	case "R":
		path = shown(c.From+slash) + " -> " + path
	case "H": // git calls it an addition, and so would a reader
		status = "A"
		notes = append(notes, "link to "+shown(c.From))
	case "A":
		if c.Kind != "file" && c.Kind != "directory" {
			notes = append(notes, c.Kind)
		}
	}
	if status == "T" {
		notes = append(notes, typeName(c.OldMode)+" -> "+c.Kind)
	}
	if c.files > 0 {
		notes = append(notes, "with "+count(c.files, "file"))
	}
	for _, what := range c.What {
		switch {
		case what == "mode" && status != "T":
			notes = append(notes, "mode "+c.OldMode+" -> "+c.Mode)
		case what == "owner", what == "xattrs", what == "device", what == "times" && len(c.What) == 1 && status == "M":
			notes = append(notes, what)
		}
	}
	note := ""
	if len(notes) > 0 {
		note = "  " + paint(colour, dim, "("+strings.Join(notes, ", ")+")")
	}
	sgr := map[string]string{"A": green, "D": red, "R": cyan}[status]
	if sgr == "" {
		sgr = yellow
	}
	return paint(colour, sgr, status) + "  " + path + note
}

func isDir(mode string) bool { return strings.HasPrefix(mode, "04") }

// typeName is what an octal mode's type is called.
func typeName(mode string) string {
	switch {
	case isDir(mode):
		return "directory"
	case strings.HasPrefix(mode, "10"):
		return "file"
	case strings.HasPrefix(mode, "12"):
		return "symlink"
	}
	return "special file"
}
