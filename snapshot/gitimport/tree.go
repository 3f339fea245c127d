package gitimport

import (
	"bytes"
	"fmt"
	"strings"

	"tine/snapshot/gitimport/objects"
)

// Modes in git trees, canonical form.
const (
	modeTree    = 0o040000
	modeFile    = 0o100644
	modeExec    = 0o100755
	modeSymlink = 0o120000
	modeGitlink = 0o160000
)

// entry is one name in a git tree.
type entry struct {
	mode uint32 // canonical
	name string
	id   objects.ID
}

// tree is one git tree object.
type tree struct {
	id      objects.ID
	raw     []byte
	entries []entry
}

// parseTree decodes a tree; why tells what is wrong with it. Names are checked by checkName where they are used.
func parseTree(raw []byte) (entries []entry, why string) {
	text := string(raw) // names share this one copy
	entries = make([]entry, 0, len(raw)/40+1)
	for len(text) > 0 {
		sp := strings.IndexByte(text, ' ')
		if sp < 1 || sp > 6 {
			return nil, "an entry has no mode"
		}
		var mode uint32
		for _, c := range []byte(text[:sp]) {
			if c < '0' || c > '7' {
				return nil, fmt.Sprintf("an entry has the mode %q", text[:sp])
			}
			mode = mode<<3 | uint32(c-'0')
		}
		text = text[sp+1:]
		nul := strings.IndexByte(text, 0)
		if nul < 0 || len(text) < nul+21 {
			return nil, "it is cut off"
		}
		e := entry{name: text[:nul]}
		copy(e.id[:], text[nul+1:])
		text = text[nul+21:]
		switch mode & 0o170000 {
		case 0o100000: // old commits have group-writable files; git takes them as what the owner may do
			e.mode = modeFile
			if mode&0o100 != 0 {
				e.mode = modeExec
			}
		case modeTree, modeSymlink, modeGitlink:
			e.mode = mode & 0o170000
		default:
			return nil, fmt.Sprintf("%q has the mode %o", e.name, mode)
		}
		if n := len(entries); n > 0 && !treeLess(&entries[n-1], &e) {
			return nil, fmt.Sprintf("%q is out of order or there twice", e.name)
		}
		entries = append(entries, e)
	}
	return entries, ""
}

// treeLess is the order of entries: by name, a directory's ending in a slash. Two of one name, file and directory, may
// lie apart; duplicates refuses those.
func treeLess(a, b *entry) bool {
	n := min(len(a.name), len(b.name))
	if c := strings.Compare(a.name[:n], b.name[:n]); c != 0 {
		return c < 0
	}
	at := func(e *entry) byte {
		if len(e.name) > n {
			return e.name[n]
		}
		if e.mode == modeTree {
			return '/'
		}
		return 0
	}
	x, y := at(a), at(b)
	if x != y {
		return x < y
	}
	return len(a.name) < len(b.name)
}

// duplicate finds a name that is there as a file and as a directory.
func duplicate(entries []entry) (string, bool) {
	for i := range entries {
		if entries[i].mode != modeTree {
			continue
		}
		name := entries[i].name
		for k := i - 1; k >= 0 && strings.HasPrefix(entries[k].name, name); k-- {
			if entries[k].name == name {
				return name, true
			}
		}
	}
	return "", false
}

// checkName says why a name can't be in a workspace, or "". It is git's verify_path for Linux.
func checkName(name string) string {
	switch {
	case name == "":
		return "it has an empty name"
	case name == "." || name == "..":
		return "it has the name " + name
	case strings.IndexByte(name, '/') >= 0:
		return "its name has a slash"
	case len(name) > 255:
		return fmt.Sprintf("its name has %d bytes; file systems take 255", len(name))
	case len(name) == 4 && strings.EqualFold(name, ".git"):
		return "a directory's .git belongs to git itself"
	}
	return ""
}

func encodeTree(entries []entry) []byte {
	var b bytes.Buffer
	for i := range entries {
		e := &entries[i]
		fmt.Fprintf(&b, "%o %s\x00", e.mode, e.name)
		b.Write(e.id[:])
	}
	return b.Bytes()
}

// emptyTree is the id of the tree without entries.
var emptyTree = objects.HashObject(objects.Tree, nil)

// trees reads a repository's trees, and those that a rewrite has made instead.
type trees struct {
	repo *Repository
	db   *objects.DB
	made map[objects.ID][]byte
	// kept are trees that are needed again: those of the selected commit.
	kept map[objects.ID]*tree
}

func newTrees(r *Repository, db *objects.DB) *trees {
	return &trees{repo: r, db: db, made: map[objects.ID][]byte{}, kept: map[objects.ID]*tree{}}
}

// maxPath (16 KiB) bounds a directory's path; git itself can't check out more than 4 KiB. A walk holds the path of every
// directory that it is in, so a megabyte of nested trees could cost gigabytes.
const maxPath = 16 << 10

// get reads a tree; path says where, for errors.
func (t *trees) get(id objects.ID, path string) (*tree, error) {
	if len(path) > maxPath {
		return nil, &PathError{path[:100] + "...", fmt.Sprintf("it has more than %d bytes", maxPath)}
	}
	if have, ok := t.kept[id]; ok {
		return have, nil
	}
	what := "the tree of " + path
	if path == "" {
		what = "the root tree"
	}
	raw, made := t.made[id]
	if !made && id == emptyTree {
		raw, made = []byte{}, true // git knows it without having it
	}
	if !made {
		typ, data, err := t.db.Read(id)
		if err != nil {
			return nil, t.repo.objectError(err, id, what)
		}
		if typ != objects.Tree {
			return nil, &CorruptError{ID: id, What: what, Why: "it is a " + typ.String()}
		}
		raw = data
	}
	entries, why := parseTree(raw)
	if why == "" {
		if name, dup := duplicate(entries); dup {
			why = fmt.Sprintf("%q is there twice", name)
		}
	}
	if why != "" {
		return nil, &CorruptError{ID: id, What: what, Why: why}
	}
	for i := range entries {
		if why := checkName(entries[i].name); why != "" {
			return nil, &PathError{join(path, entries[i].name), why}
		}
	}
	return &tree{id, raw, entries}, nil
}

// keep is get for a tree that is asked for again later.
func (t *trees) keep(id objects.ID, path string) (*tree, error) {
	got, err := t.get(id, path)
	if err == nil {
		t.kept[id] = got
	}
	return got, err
}

func (t *trees) add(entries []entry) objects.ID {
	raw := encodeTree(entries)
	id := objects.HashObject(objects.Tree, raw)
	if id != emptyTree {
		t.made[id] = raw
	}
	return id
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
