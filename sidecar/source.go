package sidecar

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sourcePlaces finds every directory that belongs to the git repository at repo, all of which a run hides (S13): the
// git directory, the common directory, the main and the linked worktrees, and the alternates' object stores with the
// repositories around them. It reads a handful of small files and runs nothing.
func sourcePlaces(repo string) ([]string, error) {
	var places []string
	add := func(dir string) error {
		real, err := filepath.EvalSymlinks(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a pruned worktree, an alternate that is gone: there is nothing to hide
		}
		if err == nil && !slices.Contains(places, real) {
			places = append(places, real)
		}
		return err
	}
	gitDir, workTree, err := findGitDir(repo)
	if err != nil {
		return nil, err
	}
	common, err := commonDir(gitDir)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{workTree, gitDir, common} {
		if dir != "" {
			if err := add(dir); err != nil {
				return nil, err
			}
		}
	}
	if filepath.Base(common) == ".git" {
		if err := add(filepath.Dir(common)); err != nil { // the main worktree, when repo is a linked one
			return nil, err
		}
	}
	linked, err := filepath.Glob(filepath.Join(escapeGlob(common), "worktrees", "*", "gitdir"))
	if err != nil {
		return nil, err
	}
	for _, file := range linked {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		dotGit := strings.TrimRight(string(b), "\n")
		if !filepath.IsAbs(dotGit) { // git 2.48's relative worktrees
			dotGit = filepath.Join(filepath.Dir(file), dotGit)
		}
		if err := add(filepath.Dir(dotGit)); err != nil {
			return nil, err
		}
	}
	objects, err := alternates(filepath.Join(common, "objects"))
	if err != nil {
		return nil, err
	}
	for _, dir := range objects {
		if err := add(dir); err != nil {
			return nil, err
		}
		// objects of a repository: hide all of it, refs and worktree too
		if owner := filepath.Dir(dir); filepath.Base(dir) == "objects" && isGitDir(owner) {
			if filepath.Base(owner) == ".git" {
				owner = filepath.Dir(owner)
			}
			if err := add(owner); err != nil {
				return nil, err
			}
		}
	}
	return outermost(places), nil
}

// findGitDir looks for a repository at dir and above, as git does.
func findGitDir(dir string) (gitDir, workTree string, err error) {
	start, err := filepath.Abs(dir)
	if err != nil {
		return "", "", err
	}
	if _, err := os.Stat(start); err != nil {
		return "", "", err
	}
	for at := start; ; at = filepath.Dir(at) {
		dotGit := filepath.Join(at, ".git")
		st, err := os.Stat(dotGit)
		switch {
		case err == nil && st.IsDir() && isGitDir(dotGit):
			return dotGit, at, nil
		case err == nil && st.Mode().IsRegular():
			b, err := os.ReadFile(dotGit)
			if err != nil {
				return "", "", err
			}
			target, ok := strings.CutPrefix(strings.TrimRight(string(b), "\n"), "gitdir: ")
			if !ok {
				return "", "", fmt.Errorf("%s is not a gitdir file", dotGit)
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(at, target)
			}
			return target, at, nil
		}
		if isGitDir(at) {
			return at, "", nil
		}
		if at == filepath.Dir(at) {
			return "", "", &NotRepositoryError{Path: start}
		}
	}
}

// NotRepositoryError says that no git repository is at a path or above it.
type NotRepositoryError struct{ Path string }

func (e *NotRepositoryError) Error() string {
	return fmt.Sprintf("%s is not in a git repository", e.Path)
}

func isGitDir(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err != nil {
		return false
	}
	if _, err := os.Stat(filepath.Join(dir, "commondir")); err == nil {
		return true
	}
	st, err := os.Stat(filepath.Join(dir, "objects"))
	return err == nil && st.IsDir()
}

func commonDir(gitDir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(gitDir, "commondir"))
	if errors.Is(err, fs.ErrNotExist) {
		return gitDir, nil
	}
	if err != nil {
		return "", err
	}
	dir := strings.TrimSpace(string(b))
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(gitDir, dir)
	}
	return dir, nil
}

// alternates lists the object directories that objects borrows from, directly and through others.
func alternates(objects string) ([]string, error) {
	var all []string
	queue := []string{objects}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		f, err := os.Open(filepath.Join(at, "info", "alternates"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s := bufio.NewScanner(f)
		for s.Scan() {
			line := s.Text()
			if line == "" || line[0] == '#' {
				continue
			}
			if !filepath.IsAbs(line) {
				line = filepath.Join(at, line)
			}
			if !slices.Contains(all, line) {
				all = append(all, line)
				queue = append(queue, line)
			}
		}
		f.Close()
		if err := s.Err(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// outermost drops the places that lie in another one.
func outermost(places []string) []string {
	var out []string
	for _, p := range places {
		inner := slices.ContainsFunc(places, func(q string) bool { return q != p && within(p, q) })
		if !inner && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// within reports whether path is dir or lies in it. Both are clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// checkCover refuses to hide what a program can't do without (S13).
func checkCover(hidden []string, home string) error {
	for _, dir := range hidden {
		for _, needed := range []string{"/", "/usr", home} {
			real, err := filepath.EvalSymlinks(needed)
			if needed == "" || err != nil {
				continue
			}
			if within(real, dir) {
				return &Refusal{
					Rule: "S13", Code: "source_covers_host",
					Summary: "the source repository or the store covers a directory that the program needs (/, /usr or the home directory), so it can't be hidden",
					Detail:  fmt.Sprintf("%s holds %s, so it can't be hidden from the program", dir, needed),
					Remedy:  "use a clone in a directory of its own, or give up the isolation with --writable-host",
				}
			}
		}
	}
	return nil
}
