package gitimport

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"

	"tine/snapshot/gitimport/objects"
)

// Repository is a git repository that was found on disk: bare or not, or a linked worktree of one. Its paths are
// absolute and have no symlinks.
type Repository struct {
	GitDir    string // with HEAD and, in a linked worktree, the index
	CommonDir string // with objects and refs; equal to GitDir but in a linked worktree
	WorkTree  string // "" for a bare repository
	// Alternates are object directories beside CommonDir/objects, nearest first.
	Alternates []string
	// Partial: a promisor remote may have been asked to leave objects out.
	Partial bool

	config repoConfig
	refs   *filesystem.Storage // go-git's; for references only
}

// Locate finds the repository at path or around it: path may be a work tree or a directory in one, a linked worktree, a
// bare repository or a .git directory. It only reads.
func Locate(path string) (*Repository, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return nil, &NotRepositoryError{path, reason(err)}
	}
	st, err := os.Stat(abs)
	if err != nil {
		return nil, &NotRepositoryError{path, reason(err)}
	}
	if !st.IsDir() {
		return nil, &NotRepositoryError{path, "not a directory"}
	}
	for dir := abs; ; dir = filepath.Dir(dir) {
		r, err := repositoryAt(dir)
		if r != nil || err != nil {
			if err == nil {
				err = r.load()
			}
			if err != nil {
				return nil, err
			}
			return r, nil
		}
		if dir == filepath.Dir(dir) {
			return nil, &NotRepositoryError{path, "neither it nor a directory above it has a .git"}
		}
	}
}

// reason is an error without the path that the caller names anyway.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// repositoryAt looks at one directory; nil and no error if there is no repository.
func repositoryAt(dir string) (*Repository, error) {
	dot := filepath.Join(dir, ".git")
	st, err := os.Stat(dot)
	switch {
	case err == nil && st.IsDir():
		gitDir, err := filepath.EvalSymlinks(dot)
		if err != nil {
			return nil, &NotRepositoryError{dot, reason(err)}
		}
		if common, ok := gitDirAt(gitDir); ok {
			return &Repository{GitDir: gitDir, CommonDir: common, WorkTree: dir}, nil
		}
	case err == nil && st.Mode().IsRegular():
		gitDir, err := readGitFile(dot)
		if err != nil {
			return nil, err
		}
		common, ok := gitDirAt(gitDir)
		if !ok {
			return nil, &NotRepositoryError{dot, "it points to " + gitDir + ", which is no git directory"}
		}
		return &Repository{GitDir: gitDir, CommonDir: common, WorkTree: dir}, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
		return nil, &NotRepositoryError{dot, reason(err)}
	}
	if common, ok := gitDirAt(dir); ok {
		r := &Repository{GitDir: dir, CommonDir: common}
		switch {
		case common != dir: // the git directory of a linked worktree
			if b, err := objects.ReadRegular(filepath.Join(dir, "gitdir"), maxPathFile); err == nil {
				r.WorkTree = filepath.Dir(inDir(dir, strings.TrimRight(string(b), "\r\n")))
			}
		case filepath.Base(dir) == ".git":
			r.WorkTree = filepath.Dir(dir)
		}
		return r, nil
	}
	return nil, nil
}

func inDir(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// readGitFile reads a .git that is a file: "gitdir: PATH".
func readGitFile(path string) (string, error) {
	b, err := objects.ReadRegular(path, maxPathFile)
	if err != nil {
		return "", &NotRepositoryError{path, reason(err)}
	}
	target, ok := strings.CutPrefix(string(b), "gitdir: ")
	target = strings.TrimRight(target, "\r\n")
	if !ok || target == "" {
		return "", &NotRepositoryError{path, "not a directory, and a file that doesn't say where the git directory is"}
	}
	dir, err := filepath.EvalSymlinks(inDir(filepath.Dir(path), target))
	if err != nil {
		return "", &NotRepositoryError{path, "it points to " + target + ": " + reason(err)}
	}
	return dir, nil
}

// gitDirAt applies git's own test: HEAD, and objects and refs in the common directory.
func gitDirAt(dir string) (common string, ok bool) {
	if st, err := os.Lstat(filepath.Join(dir, "HEAD")); err != nil || st.IsDir() {
		return "", false
	}
	common = dir
	b, err := objects.ReadRegular(filepath.Join(dir, "commondir"), maxPathFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	if err == nil {
		c, err := filepath.EvalSymlinks(inDir(dir, strings.TrimRight(string(b), "\r\n")))
		if err != nil {
			return "", false
		}
		common = c
	}
	for _, d := range []string{"objects", "refs"} {
		if st, err := os.Stat(filepath.Join(common, d)); err != nil || !st.IsDir() {
			return "", false
		}
	}
	return common, true
}

// load reads configuration and alternates.
func (r *Repository) load() error {
	if err := r.loadConfig(); err != nil {
		return err
	}
	seen := map[string]bool{r.objectDir(): true}
	if err := r.addAlternates(r.objectDir(), seen, 0); err != nil {
		return err
	}
	fsys := dotgit.NewRepositoryFilesystem(regularOnly{osfs.New(r.GitDir)}, regularOnly{osfs.New(r.CommonDir)})
	r.refs = filesystem.NewStorage(fsys, cache.NewObjectLRU(0))
	return nil
}

func (r *Repository) objectDir() string { return filepath.Join(r.CommonDir, "objects") }

// ObjectDirs are all object directories, in the order of look-ups.
func (r *Repository) ObjectDirs() []string { return append([]string{r.objectDir()}, r.Alternates...) }

// maxAlternates is git's own bound on alternates of alternates.
const maxAlternates = 5

func (r *Repository) addAlternates(dir string, seen map[string]bool, depth int) error {
	b, err := objects.ReadRegular(filepath.Join(dir, "info", "alternates"), maxListFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &NotRepositoryError{r.CommonDir, "its alternates can't be read: " + reason(err)}
	}
	if depth > maxAlternates {
		return &FormatError{r.CommonDir, "its alternates have alternates that have alternates, more than 5 deep"}
	}
	for _, line := range strings.Split(string(b), "\n") {
		line = unquote(strings.TrimRight(line, "\r"))
		if line == "" || line[0] == '#' {
			continue
		}
		// One that is gone is skipped, as git does: what it would have had is reported where it is missed.
		alt, err := filepath.EvalSymlinks(inDir(dir, line))
		if err != nil || seen[alt] {
			continue
		}
		seen[alt] = true
		r.Alternates = append(r.Alternates, alt)
		if err := r.addAlternates(alt, seen, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// unquote undoes git's C-style quoting, used for paths with odd bytes.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	var b strings.Builder
	body := s[1 : len(s)-1]
	for i := 0; i < len(body); i++ {
		c := body[i]
		if c != '\\' || i+1 == len(body) {
			b.WriteByte(c)
			continue
		}
		i++
		if d := body[i]; '0' <= d && d <= '3' && i+2 < len(body) {
			b.WriteByte((d-'0')<<6 | (body[i+1]-'0')<<3 | (body[i+2] - '0'))
			i += 2
			continue
		}
		if k := strings.IndexByte(`abtnvfr`, body[i]); k >= 0 {
			b.WriteByte("\a\b\t\n\v\f\r"[k])
		} else {
			b.WriteByte(body[i])
		}
	}
	return b.String()
}

// Objects opens the repository's object database; the caller closes it.
func (r *Repository) Objects() *objects.DB { return objects.Open(r.ObjectDirs()...) }

// Identity is the repository's physical identity: device and inode of its common directory, so that a worktree, an
// alias and a symlink are one (A4).
func (r *Repository) Identity() (dev, ino uint64, err error) {
	var st syscall.Stat_t
	if err := syscall.Stat(r.CommonDir, &st); err != nil {
		return 0, 0, fmt.Errorf("identify %s: %w", r.CommonDir, err)
	}
	return uint64(st.Dev), st.Ino, nil
}
