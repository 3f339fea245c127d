package gitimport

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tine/snapshot/gitimport/objects"
	"tine/snapshot/glob"
)

// ignoreRule is one line of an ignore file.
type ignoreRule struct {
	glob.Pattern
	negated bool
}

// ignoreList is an ignore file's rules for the directory that it lies in, or for the whole work tree.
type ignoreList struct {
	base  string // repository path of the directory; "" is the root
	rules []ignoreRule
}

// parseIgnore reads a file in gitignore's format. Lines that are no pattern match nothing, as for git.
func parseIgnore(base, text string) ignoreList {
	list := ignoreList{base: base}
	text = strings.TrimPrefix(text, "\ufeff")
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		for strings.HasSuffix(line, " ") && !escapedEnd(line) {
			line = line[:len(line)-1]
		}
		if line == "" || line[0] == '#' {
			continue
		}
		var r ignoreRule
		if line[0] == '!' {
			r.negated = true
			line = line[1:]
		}
		p, err := glob.Compile(line)
		if err != nil {
			continue
		}
		r.Pattern = p
		list.rules = append(list.rules, r)
	}
	return list
}

// escapedEnd reports whether a line's last byte follows an odd number of backslashes.
func escapedEnd(line string) bool {
	n := 0
	for i := len(line) - 2; i >= 0 && line[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// ignored decides about a path by the last rule that matches it, of the list nearest to it. lists go from the weakest
// to the strongest. A path below an ignored directory is for the caller to leave out.
func ignored(lists []ignoreList, path string, dir bool) bool {
	for i := len(lists) - 1; i >= 0; i-- {
		l := &lists[i]
		rel := path
		if l.base != "" {
			rel = strings.TrimPrefix(path, l.base+"/")
		}
		for k := len(l.rules) - 1; k >= 0; k-- {
			if l.rules[k].Match(rel, dir) {
				return !l.rules[k].negated
			}
		}
	}
	return false
}

// baseIgnores are the rules outside the work tree: the user's core.excludesFile and the repository's info/exclude.
func (r *Repository) baseIgnores() ([]ignoreList, error) {
	var lists []ignoreList
	for _, path := range []string{r.userExcludes(), filepath.Join(r.CommonDir, "info", "exclude")} {
		if path == "" {
			continue
		}
		b, err := objects.ReadRegular(path, maxListFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		lists = append(lists, parseIgnore("", string(b)))
	}
	return lists, nil
}

// userExcludes is the path of the user's own ignore file, as git finds it; "" if there is none.
func (r *Repository) userExcludes() string {
	home := os.Getenv("HOME")
	xdg := os.Getenv("XDG_CONFIG_HOME")
	if xdg == "" && home != "" {
		xdg = filepath.Join(home, ".config")
	}
	path := r.config.excludesFile
	if path == "" {
		files := []string{"/etc/gitconfig"}
		if xdg != "" {
			files = append(files, filepath.Join(xdg, "git", "config"))
		}
		if home != "" {
			files = append(files, filepath.Join(home, ".gitconfig"))
		}
		for _, f := range files {
			if cfg, err := readSettings(f); err == nil {
				if p := cfg.get("core", "excludesfile"); p != "" {
					path = p
				}
			}
		}
	}
	switch {
	case path == "" && xdg != "":
		return filepath.Join(xdg, "git", "ignore")
	case strings.HasPrefix(path, "~/"):
		return filepath.Join(home, path[2:])
	}
	return path
}
