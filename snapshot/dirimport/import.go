package dirimport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"tine/snapshot"
	"tine/snapshot/content"
	"tine/snapshot/glob"
	"tine/snapshot/hostdir"
	"tine/snapshot/image"
)

// Request says what to import.
type Request struct {
	// Dir is the directory that becomes the root.
	Dir string
	// Exclude are patterns (package glob) of paths, relative to Dir, that are left out with all that is below.
	Exclude []string
	// Progress, if set, is called now and then from any goroutine with files and bytes read so far.
	Progress func(files, bytes int64)
}

// Result is what an import made.
type Result struct {
	snapshot.Checkpoint
	// Warnings are sentences for people.
	Warnings []string
}

// Import makes a checkpoint of a directory and publishes it in the store. All contents are stored. A failed import
// publishes nothing.
func Import(ctx context.Context, store *snapshot.Store, req Request) (*Result, error) {
	im := &importer{req: req, store: store, links: map[inode]*image.Node{}, tasks: make(chan func() error), next: image.Root}
	for _, text := range req.Exclude {
		p, err := glob.Compile(text)
		if err == nil && strings.HasPrefix(text, "!") {
			err = errors.New("nothing can be taken back in; leave it out of the patterns")
		}
		if err != nil {
			return nil, &RequestError{fmt.Sprintf("exclude %q: %v", text, err)}
		}
		im.excludes = append(im.excludes, p)
	}
	im.matched = make([]bool, len(im.excludes))
	dir, err := filepath.Abs(req.Dir)
	if err != nil {
		return nil, err
	}
	root, err := hostdir.Open(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	hold, err := store.Shared(ctx)
	if err != nil {
		return nil, err
	}
	defer hold.Release()
	if err := im.avoidStore(dir); err != nil {
		return nil, err
	}
	if im.forks, err = hostdir.ForkMounts(dir); err != nil {
		return nil, err
	}
	return im.run(ctx, root)
}

// importer is one import under way.
type importer struct {
	req      Request
	store    *snapshot.Store
	excludes []glob.Pattern
	matched  []bool
	own      inode           // the store's directory
	forks    map[string]bool // where forks are mounted
	tasks    chan func() error

	// Owned by the walk.
	next  uint64
	nodes []*image.Node
	names []name
	links map[inode]*image.Node // files with several names, and the node of the first

	files, bytes atomic.Int64 // read so far
}

// inode is a host inode's identity.
type inode struct{ dev, ino uint64 }

type name struct {
	dir  uint64
	name string
	ino  uint64
}

// avoidStore notes which directory must not be entered, and refuses a directory inside of it.
func (im *importer) avoidStore(dir string) error {
	st, err := stat(im.store.Dir())
	if err != nil {
		return err
	}
	im.own = st
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for at := real; at != filepath.Dir(at); at = filepath.Dir(at) {
		if st, err := stat(at); err == nil && st == im.own {
			return &HoldsError{dir, "in the store itself"}
		}
	}
	return nil
}

func stat(path string) (inode, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return inode{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return inode{st.Dev, st.Ino}, nil
}

func (im *importer) run(ctx context.Context, root *hostdir.Dir) (*Result, error) {
	g, gctx := errgroup.WithContext(ctx)
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for t := range im.tasks {
				if err := t(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(im.tasks)
		st, err := root.Lstat("")
		if err != nil {
			return err
		}
		return im.dir(gctx, root, "", st)
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	b := image.NewBuilder(content.SHA1)
	for _, n := range im.nodes {
		b.Add(*n)
	}
	for _, e := range im.names {
		b.AddEntry(e.dir, e.name, e.ino)
	}
	b.SetNextIno(im.next)
	encoded, err := b.Encode()
	if err != nil {
		return nil, err
	}
	res := &Result{}
	for i, p := range im.excludes {
		if !im.matched[i] {
			res.Warnings = append(res.Warnings, fmt.Sprintf("exclude %q matched nothing", p))
		}
	}
	draft := snapshot.Draft{Image: encoded, Provenance: im.provenance(root.Path())}
	draft.Files, draft.Bytes = im.count()
	res.Checkpoint, err = im.store.Publish(ctx, draft)
	if err != nil {
		return nil, err
	}
	return res, nil
}

func (im *importer) provenance(dir string) snapshot.Provenance {
	p := snapshot.Provenance{Kind: "dir", Source: dir}
	if len(im.req.Exclude) > 0 {
		list := append([]string(nil), im.req.Exclude...)
		sort.Strings(list)
		p.Detail = map[string]string{"exclude": strings.Join(list, "\n")}
	}
	return p
}

// count counts regular files and symlinks by name, and what they hold, without the top .git.
func (im *importer) count() (files, bytes int64) {
	byIno := make(map[uint64]*image.Node, len(im.nodes))
	for _, n := range im.nodes {
		byIno[n.Ino] = n
	}
	inGit := map[uint64]bool{}
	for _, e := range im.names { // parents come before their children
		n := byIno[e.ino]
		if inGit[e.dir] || e.dir == image.Root && e.name == ".git" {
			inGit[e.ino] = n.Mode&unix.S_IFMT == unix.S_IFDIR
			continue
		}
		switch n.Mode & unix.S_IFMT {
		case unix.S_IFREG, unix.S_IFLNK:
			files++
			bytes += n.Size
		}
	}
	return files, bytes
}
