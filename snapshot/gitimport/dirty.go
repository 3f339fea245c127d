package gitimport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"tine/snapshot/content"
	"tine/snapshot/glob"
	"tine/snapshot/hostdir"
)

// workTree reads the work tree as it is and makes its items: tracked files and untracked ones that are not ignored. The
// workspace's index stays HEAD's, so that its git shows the same differences from HEAD. A file that is as in HEAD is the
// same item as in a clean import, its contents left in the repository; index entries of others lose their items.
func (im *importer) workTree(ctx context.Context, index []tracked) (*item, error) {
	if im.repo.WorkTree == "" {
		return nil, &RequestError{"a bare repository has no work tree to take: " + im.repo.CommonDir}
	}
	subpath, err := cleanSubpath(im.req.Subpath)
	if err != nil {
		return nil, err
	}
	w := &workTree{im: im, head: map[string]*tracked{}, subpath: subpath, tasks: make(chan func() error)}
	if w.excludes, err = compileExcludes(im.req.Exclude); err != nil {
		return nil, err
	}
	for i := range index {
		index[i].at = nil
		w.head[join(subpath, index[i].path)] = &index[i]
	}
	if err := w.readIndex(); err != nil {
		return nil, err
	}
	if w.forks, err = hostdir.ForkMounts(im.repo.WorkTree); err != nil {
		return nil, err
	}
	lists, err := im.repo.baseIgnores()
	if err != nil {
		return nil, err
	}
	g, ctx := errgroup.WithContext(ctx)
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for t := range w.tasks {
				if err := t(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	root := newDir("", im.when)
	g.Go(func() error {
		defer close(w.tasks)
		return w.open(ctx, root, lists)
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	prune(root)
	if w.special > 0 {
		im.warnings = append(im.warnings, fmt.Sprintf("%d FIFOs, sockets and devices of the work tree are left out", w.special))
	}
	if len(w.nested) > 0 {
		im.warnings = append(im.warnings, "repositories inside the work tree are left out: "+strings.Join(w.nested, ", "))
	}
	return root, nil
}

// workTree is one walk. Its maps are complete before the workers start.
type workTree struct {
	im       *importer
	head     map[string]*tracked // by repository path
	tracked  map[string]staged
	above    map[string]bool // directories that have something tracked below
	subpath  string
	excludes []glob.Pattern
	tasks    chan func() error
	forks    map[string]bool // where forks are mounted
	special  int
	nested   []string
}

// readIndex reads which paths are tracked.
func (w *workTree) readIndex() (err error) {
	if w.tracked, err = w.im.repo.readIndex(); err != nil {
		return err
	}
	w.above = map[string]bool{}
	for dir := range w.tracked {
		for {
			i := strings.LastIndexByte(dir, '/')
			if i < 0 || w.above[dir[:i]] {
				break
			}
			dir = dir[:i]
			w.above[dir] = true
		}
	}
	return nil
}

// open walks down to the subpath, collecting ignore files, and then everything in it.
func (w *workTree) open(ctx context.Context, root *item, lists []ignoreList) error {
	d, err := hostdir.Open(w.im.repo.WorkTree)
	if err != nil {
		return err
	}
	path := ""
	for _, name := range strings.Split(w.subpath, "/") {
		if name == "" {
			break
		}
		if lists, err = withIgnoreFile(d, path, lists); err != nil {
			d.Close()
			return err
		}
		sub, err := d.OpenDir(name)
		d.Close()
		if err != nil {
			return err
		}
		d, path = sub, join(path, name)
	}
	defer d.Close()
	return w.dir(ctx, d, path, root, lists, false)
}

// withIgnoreFile adds a directory's own .gitignore. It has to be a regular file, as for git.
func withIgnoreFile(d *hostdir.Dir, path string, lists []ignoreList) ([]ignoreList, error) {
	st, err := d.Lstat(".gitignore")
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return lists, nil
	}
	if err != nil {
		return nil, err
	}
	f, err := d.OpenFile(".gitignore")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf := make([]byte, min(f.Size(), 16<<20))
	if err := content.ReadFull(f, buf, 0); err != nil {
		return nil, err
	}
	return append(lists[:len(lists):len(lists)], parseIgnore(path, string(buf))), nil
}

// dir reads one directory. In an ignored one only what is tracked counts. Children are sorted by name.
func (w *workTree) dir(ctx context.Context, d *hostdir.Dir, path string, to *item, lists []ignoreList, ignoredDir bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	lists, err := withIgnoreFile(d, path, lists)
	if err != nil {
		return err
	}
	names, err := d.Names()
	if err != nil {
		return err
	}
	to.hadFiles = len(names) > 0
	for _, name := range names {
		if name == ".git" {
			continue
		}
		at := join(path, name)
		if w.forks[at] {
			if w.excluded(at, true) || ignoredDir || ignored(lists, at, true) {
				continue
			}
			return &RequestError{fmt.Sprintf("a fork is mounted at %s/%s; unmount it, or exclude it", d.Path(), name)}
		}
		st, err := d.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since the directory was listed
		}
		if err != nil {
			return err
		}
		isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if w.excluded(at, isDir) {
			continue
		}
		entry, tracked := w.tracked[at]
		skip := !tracked && (ignoredDir || ignored(lists, at, isDir))
		if isDir && w.above[at] {
			tracked = true
		}
		if skip && !tracked {
			continue
		}
		if why := checkName(name); why != "" {
			return &PathError{at, why}
		}
		kid := &item{name: name, mtime: st.Mtime}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			kid.mode, kid.mtime = unix.S_IFDIR|0o755, w.im.when
			if tracked && entry.mode == modeGitlink {
				kid.gitlink = entry.id[:]
				if h := w.head[at]; h != nil && h.mode == modeGitlink {
					h.at = kid
				}
				break
			}
			sub, err := d.OpenDir(name)
			if err != nil {
				return err
			}
			if _, err := sub.Lstat(".git"); err == nil && !tracked {
				w.nested = append(w.nested, at)
				sub.Close()
				continue
			}
			err = w.dir(ctx, sub, at, kid, lists, skip)
			sub.Close()
			if err != nil {
				return err
			}
		case unix.S_IFLNK:
			target, err := d.Readlink(name)
			if err != nil {
				return err
			}
			kid.mode = unix.S_IFLNK | 0o777
			if err := w.symlink(at, kid, target); err != nil {
				return err
			}
		case unix.S_IFREG:
			kid.mode = unix.S_IFREG | 0o644
			exec := st.Mode&0o100 != 0
			if !w.im.repo.config.fileMode { // the file system under the work tree has no such bit
				exec = tracked && entry.mode == modeExec
			}
			if exec {
				kid.mode = unix.S_IFREG | 0o755
			}
			f, err := d.OpenFile(name)
			if err != nil {
				return err
			}
			select {
			case w.tasks <- func() error { defer f.Close(); return w.file(at, kid, f) }:
			case <-ctx.Done():
				f.Close()
				return ctx.Err()
			}
		default:
			w.special++
			continue
		}
		to.add(kid)
	}
	return nil
}

func (w *workTree) excluded(path string, dir bool) bool {
	for _, p := range w.excludes {
		if p.Match(path, dir) {
			return true
		}
	}
	return false
}
