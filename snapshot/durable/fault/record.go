package fault

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Recording is the history of one directory tree, from a state that is taken to be durable.
type Recording struct {
	root   string
	live   map[int]*inode // all that ever were; 1 is the root
	events []event
}

// inode is a file, directory (kids isn't nil) or symlink (target isn't "").
type inode struct {
	perm   fs.FileMode
	data   []byte
	kids   map[string]int
	target string
}

type action int

const (
	name     action = iota // id gets the name (dir, name), and loses (dir2, name2) if dir2 isn't 0
	unname                 // (dir, name) goes
	mode                   // id's permissions
	write                  // id's bytes at off
	size                   // id's size
	grow                   // id's size, if it is less
	syncFile               // id's bytes and size are durable
	syncDir                // id's names are durable
)

type event struct {
	do          action
	id          int
	dir, dir2   int
	name, name2 string
	off         int64
	data        []byte
	perm        fs.FileMode
}

// data says that an event changes a file's bytes.
func (e *event) isData() bool { return e.do == write || e.do == size || e.do == grow }

// isName says that an event changes a directory.
func (e *event) isName() bool { return e.do == name || e.do == unname }

// Record begins to record what happens below root, which exists; what is there counts as durable. Files that are
// open already are not seen.
func (f *FS) Record(root string) (*Recording, error) {
	r := &Recording{root: filepath.Clean(root), live: map[int]*inode{}}
	if err := r.load(r.root); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rec = r
	return r, nil
}

// load reads the state at the beginning as events that a sync of everything follows.
func (r *Recording) load(path string) error {
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case path == r.root:
			r.live[1] = &inode{perm: info.Mode().Perm(), kids: map[string]int{}}
		case d.IsDir():
			r.mkdir(path, info.Mode().Perm())
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			r.symlink(target, path)
		case d.Type().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			r.opened(path, os.O_CREATE, info.Mode().Perm())
			r.write(r.lookup(path), 0, data)
		}
		return nil
	})
	for id, n := range r.live {
		if n.kids != nil {
			r.events = append(r.events, event{do: syncDir, id: id})
		} else {
			r.events = append(r.events, event{do: syncFile, id: id})
		}
	}
	return err
}

// Len is the number of recorded events; Cut takes 0 to Len of them.
func (r *Recording) Len() int { return len(r.events) }

// split finds a path's directory; ok is false outside of the tree.
func (r *Recording) split(path string) (dir int, base string, ok bool) {
	rel, found := strings.CutPrefix(filepath.Clean(path), r.root+"/")
	if !found {
		return 0, "", false
	}
	steps := strings.Split(rel, "/")
	dir = 1
	for _, s := range steps[:len(steps)-1] {
		dir = r.live[dir].kids[s]
		if dir == 0 || r.live[dir].kids == nil {
			return 0, "", false
		}
	}
	return dir, steps[len(steps)-1], true
}

// lookup is a path's inode, 0 for none.
func (r *Recording) lookup(path string) int {
	if filepath.Clean(path) == r.root {
		return 1
	}
	dir, base, ok := r.split(path)
	if !ok {
		return 0
	}
	return r.live[dir].kids[base]
}

func (r *Recording) add(e event) { r.events = append(r.events, e) }

func (r *Recording) make(path string, n *inode) {
	dir, base, ok := r.split(path)
	if !ok {
		return
	}
	id := len(r.live) + 1
	r.live[id] = n
	r.live[dir].kids[base] = id
	r.add(event{do: name, id: id, dir: dir, name: base})
}

func (r *Recording) opened(path string, flag int, perm fs.FileMode) {
	switch id := r.lookup(path); {
	case id == 0:
		r.make(path, &inode{perm: perm.Perm()})
	case flag&os.O_TRUNC != 0:
		r.truncate(id, 0)
	}
}

func (r *Recording) mkdir(path string, perm fs.FileMode) {
	r.make(path, &inode{perm: perm.Perm(), kids: map[string]int{}})
}

func (r *Recording) mkdirAll(path string, perm fs.FileMode) {
	if path = filepath.Clean(path); r.lookup(path) != 0 || !strings.HasPrefix(path, r.root+"/") {
		return
	}
	r.mkdirAll(filepath.Dir(path), perm)
	r.mkdir(path, perm)
}

func (r *Recording) symlink(target, path string) { r.make(path, &inode{target: target}) }

func (r *Recording) link(old, path string) {
	id := r.lookup(old)
	dir, base, ok := r.split(path)
	if id == 0 || !ok {
		return
	}
	r.live[dir].kids[base] = id
	r.add(event{do: name, id: id, dir: dir, name: base})
}

func (r *Recording) rename(old, path string) {
	id := r.lookup(old)
	dir2, base2, _ := r.split(old)
	dir, base, ok := r.split(path)
	if id == 0 || !ok {
		return
	}
	delete(r.live[dir2].kids, base2)
	r.live[dir].kids[base] = id
	r.add(event{do: name, id: id, dir: dir, name: base, dir2: dir2, name2: base2})
}

func (r *Recording) remove(path string) {
	if dir, base, ok := r.split(path); ok && r.live[dir].kids[base] != 0 {
		delete(r.live[dir].kids, base)
		r.add(event{do: unname, dir: dir, name: base})
	}
}

func (r *Recording) chmod(path string, perm fs.FileMode) {
	if id := r.lookup(path); id != 0 {
		r.add(event{do: mode, id: id, perm: perm.Perm()})
	}
}

func (r *Recording) syncDir(path string) {
	if id := r.lookup(path); id != 0 {
		r.add(event{do: syncDir, id: id})
	}
}

// write may be called on no recording, by a write that is cut in half.
func (r *Recording) write(id int, off int64, data []byte) {
	if r != nil && id != 0 {
		r.add(event{do: write, id: id, off: off, data: bytes.Clone(data)})
	}
}

func (r *Recording) truncate(id int, n int64) { r.addFile(event{do: size, id: id, off: n}) }
func (r *Recording) allocate(id int, n int64) { r.addFile(event{do: grow, id: id, off: n}) }
func (r *Recording) sync(id int)              { r.addFile(event{do: syncFile, id: id}) }

func (r *Recording) punch(id int, off, n int64) {
	r.addFile(event{do: write, id: id, off: off, data: make([]byte, n)})
}

func (r *Recording) addFile(e event) {
	if e.id != 0 {
		r.add(e)
	}
}
