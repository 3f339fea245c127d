package sidecar

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tine/snapshot"
	"tine/snapshot/gitimport"
	"tine/snapshot/gitimport/objects"
)

// sourcePlaces finds every directory that belongs to the git repository at repo, all of which a run hides (S13): the
// git directory, the common directory, the main and the linked worktrees, and the alternates' object stores with the
// repositories around them. It reads a handful of small files and runs nothing.
func sourcePlaces(repo string) ([]string, error) {
	r, err := gitimport.Locate(repo)
	if err != nil {
		return nil, err
	}
	return repositoryPlaces(r)
}

func repositoryPlaces(r *gitimport.Repository) ([]string, error) {
	var places []string
	add := func(dir string) error {
		real, err := filepath.EvalSymlinks(dir)
		if errors.Is(err, fs.ErrNotExist) || dir == "" {
			return nil // a pruned worktree, an alternate that is gone: there is nothing to hide
		}
		if err == nil && !slices.Contains(places, real) {
			places = append(places, real)
		}
		return err
	}
	linked, err := linkedWorktrees(r.CommonDir)
	if err != nil {
		return nil, err
	}
	dirs := append([]string{r.WorkTree, r.GitDir, r.CommonDir, around(r.CommonDir)}, linked...)
	for _, objects := range r.Alternates {
		dirs = append(dirs, objects)
		if owner := filepath.Dir(objects); filepath.Base(objects) == "objects" && isGitDir(owner) {
			dirs = append(dirs, owner, around(owner)) // the lender's refs and work tree are no less its history
		}
	}
	for _, dir := range dirs {
		if err := add(dir); err != nil {
			return nil, err
		}
	}
	return outermost(places), nil
}

// placesOf finds the directories of the repositories that a checkpoint came from: those that its contents may still be
// read from, and those that it, or what it was sealed over, was imported from.
func (h *Host) placesOf(c snapshot.Checkpoint) ([]string, error) {
	commons, err := h.repositoriesOf(c)
	if err != nil {
		return nil, err
	}
	var places []string
	for _, common := range commons {
		of, err := sourcePlaces(common)
		var gone *gitimport.NotRepositoryError
		if err != nil && !errors.As(err, &gone) { // what is no repository any more has nothing beside it to hide
			return nil, err
		}
		places = append(append(places, common), of...)
	}
	return places, nil
}

// repositoriesOf lists common directories.
func (h *Host) repositoriesOf(c snapshot.Checkpoint) ([]string, error) {
	var commons []string
	configs, err := h.store.Sources()
	if err != nil {
		return nil, err
	}
	for _, s := range configs {
		git, ok, err := gitimport.ParseSource(s)
		if err != nil {
			return nil, err
		}
		if ok && slices.Contains(c.Sources, s.ID) {
			commons = append(commons, git.CommonDir)
		}
	}
	for seen := map[string]bool{}; !seen[c.ID]; {
		seen[c.ID] = true
		records, err := h.store.Provenance(c.ID)
		if err != nil {
			return nil, err
		}
		for _, p := range records {
			if p.Kind == "git" && filepath.IsAbs(p.Source) {
				commons = append(commons, p.Source)
			}
		}
		if c.Parent == "" {
			break
		}
		parent, err := h.store.Checkpoint(c.Parent)
		if errors.Is(err, snapshot.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		c = parent
	}
	slices.Sort(commons)
	return slices.Compact(commons), nil
}

// around is the work tree that a .git directory usually has.
func around(gitDir string) string {
	if filepath.Base(gitDir) == ".git" {
		return filepath.Dir(gitDir)
	}
	return ""
}

func isGitDir(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "HEAD"))
	return err == nil
}

// maxGitFile bounds the one path that a worktree's gitdir file holds, in bytes.
const maxGitFile = 64 << 10

// linkedWorktrees lists the work trees that were added to a repository.
func linkedWorktrees(common string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(common, "worktrees"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, e := range entries {
		admin := filepath.Join(common, "worktrees", e.Name())
		b, err := objects.ReadRegular(filepath.Join(admin, "gitdir"), maxGitFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		dotGit := strings.TrimRight(string(b), "\n")
		if !filepath.IsAbs(dotGit) { // git 2.48's relative worktrees
			dotGit = filepath.Join(admin, dotGit)
		}
		dirs = append(dirs, filepath.Dir(dotGit))
	}
	return dirs, nil
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

// checkCover refuses to hide what a program can't do without (S13), before anything is imported for it. Package isolate
// checks again, twins of the directories by other mounts included.
func checkCover(hidden []string, home string) error {
	for _, dir := range hidden {
		for _, needed := range []string{"/", "/usr", home} {
			real, err := filepath.EvalSymlinks(needed)
			if needed == "" || err != nil {
				continue
			}
			if within(real, dir) {
				what := dir + " holds " + needed
				if needed == home {
					what = dir + " holds the program's home directory " + home
				}
				return &Refusal{
					Rule: "S13", Code: "source_covers_host",
					Summary: "the source repository or the store covers a directory that the program needs (/, /usr or the home directory), so it can't be hidden",
					Detail:  what + ", so it can't be hidden from the program",
					Remedy:  "use a clone in a directory of its own, or give up the isolation with --writable-host",
				}
			}
		}
	}
	return nil
}
