package gitimport

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"tine/snapshot/gitimport/objects"
	"tine/snapshot/glob"
)

// rewriter makes the history that a workspace gets when paths are left out (S12): new trees, and commits that name
// them and each other. Authors, committers, times and messages stay; signatures and the ids of commits outside the
// history are dropped, since they would be wrong or would name what is left out.
type rewriter struct {
	trees    *trees
	subpath  string // "" for all; else the directory that becomes the root
	excludes []glob.Pattern
	// hidden are blobs that are at an excluded path of some commit and at no kept path of the selected one. Older commits
	// may have them under other names, before a rename, say; they are left out there too.
	hidden map[objects.ID]bool
	// copies are kept paths of the selected commit whose bytes are those of an excluded path.
	copies  []string
	done    map[rewriteKey]objects.ID
	matched []bool // which patterns excluded something
}

type rewriteKey struct {
	id   objects.ID
	path string
	tip  bool // of the selected commit, where hidden doesn't apply
}

func (w *rewriter) excluded(path string, dir bool) bool {
	found := false
	for i, p := range w.excludes {
		if p.Match(path, dir) {
			w.matched[i], found = true, true
		}
	}
	return found
}

// compileExcludes refuses what is no pattern.
func compileExcludes(texts []string) ([]glob.Pattern, error) {
	var list []glob.Pattern
	for _, s := range texts {
		if strings.HasPrefix(s, "!") {
			return nil, &RequestError{fmt.Sprintf("exclude %q: nothing can be taken back in; leave it out of the patterns", s)}
		}
		p, err := glob.Compile(s)
		if err != nil {
			return nil, &RequestError{"exclude: " + err.Error()}
		}
		list = append(list, p)
	}
	return list, nil
}

// cleanSubpath returns the canonical form of --subpath; "" is the whole repository.
func cleanSubpath(s string) (string, error) {
	path := strings.Trim(s, "/")
	if path == "" || path == "." {
		return "", nil
	}
	path = strings.TrimPrefix(path, "./")
	for _, name := range strings.Split(path, "/") {
		if why := checkName(name); why != "" {
			return "", &RequestError{fmt.Sprintf("subpath %q: %s", s, why)}
		}
	}
	return path, nil
}

// run rewrites the commits of h, whose first is the selected one, and returns the new history.
func (w *rewriter) run(ctx context.Context, h *history) (*history, error) {
	w.matched = make([]bool, len(w.excludes))
	w.done = map[rewriteKey]objects.ID{}
	if len(w.excludes) > 0 {
		if err := w.findHidden(ctx, h); err != nil {
			return nil, err
		}
	}
	index := map[objects.ID]int{}
	for i, c := range h.commits {
		index[c.id] = i
	}
	out := &history{commits: make([]*commit, len(h.commits))}
	for _, i := range oldestFirst(h, index) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c := h.commits[i]
		root, found, err := w.root(c)
		if err != nil {
			return nil, err
		}
		if !found {
			if i == 0 {
				return nil, &RequestError{fmt.Sprintf("subpath %q is no directory of commit %s", w.subpath, c.id)}
			}
			root = emptyTree
		} else if root, err = w.tree(root, w.subpath, i == 0); err != nil {
			return nil, err
		}
		var parents []objects.ID
		for _, p := range c.parents {
			if k, ok := index[p]; ok {
				parents = append(parents, out.commits[k].id)
			}
		}
		raw := rewriteCommit(c.raw, root, parents)
		out.commits[i] = &commit{id: objects.HashObject(objects.Commit, raw), raw: raw, tree: root, parents: parents, seconds: c.seconds}
	}
	// Two commits that differed only in what is left out may have become one.
	seen := map[objects.ID]bool{}
	kept := out.commits[:0]
	for _, c := range out.commits {
		if !seen[c.id] {
			seen[c.id] = true
			kept = append(kept, c)
		}
	}
	out.commits = kept
	return out, nil
}

// oldestFirst orders the commits so that parents come before their children.
func oldestFirst(h *history, index map[objects.ID]int) []int {
	order := make([]int, 0, len(h.commits))
	state := make([]uint8, len(h.commits)) // 0 new, 1 entered, 2 done
	var stack []int
	for i := range h.commits {
		stack = append(stack[:0], i)
		for len(stack) > 0 {
			k := stack[len(stack)-1]
			if state[k] != 0 {
				stack = stack[:len(stack)-1]
				if state[k] == 1 {
					state[k] = 2
					order = append(order, k)
				}
				continue
			}
			state[k] = 1
			for _, p := range h.commits[k].parents {
				if j, ok := index[p]; ok && state[j] == 0 {
					stack = append(stack, j)
				}
			}
		}
	}
	return order
}

// root finds the tree of a commit's subpath.
func (w *rewriter) root(c *commit) (id objects.ID, found bool, err error) {
	id = c.tree
	if w.subpath == "" {
		return id, true, nil
	}
	at := ""
	for _, name := range strings.Split(w.subpath, "/") {
		t, err := w.trees.get(id, at)
		if err != nil {
			return id, false, err
		}
		found = false
		for i := range t.entries {
			if t.entries[i].name == name && t.entries[i].mode == modeTree {
				id, found = t.entries[i].id, true
			}
		}
		if !found {
			return id, false, nil
		}
		at = join(at, name)
	}
	return id, true, nil
}

// tree rewrites the tree at a path of the repository and returns its new id.
func (w *rewriter) tree(id objects.ID, path string, tip bool) (objects.ID, error) {
	if len(w.excludes) == 0 {
		return id, nil
	}
	key := rewriteKey{id, path, tip}
	if got, ok := w.done[key]; ok {
		return got, nil
	}
	t, err := w.trees.get(id, path)
	if err != nil {
		return id, err
	}
	kept := make([]entry, 0, len(t.entries))
	changed := false
	for _, e := range t.entries {
		at := join(path, e.name)
		if w.excluded(at, e.mode == modeTree) || !tip && e.mode != modeTree && e.mode != modeGitlink && w.hidden[e.id] {
			changed = true
			continue
		}
		if e.mode == modeTree {
			sub, err := w.tree(e.id, at, tip)
			if err != nil {
				return id, err
			}
			if sub == emptyTree && e.id != emptyTree {
				changed = true // git has no empty directories
				continue
			}
			changed = changed || sub != e.id
			e.id = sub
		}
		kept = append(kept, e)
	}
	if changed {
		id = w.trees.add(kept)
	}
	w.done[key] = id
	return id, nil
}

// findHidden fills hidden and copies.
func (w *rewriter) findHidden(ctx context.Context, h *history) error {
	w.hidden = map[objects.ID]bool{}
	type visit struct {
		id   objects.ID
		path string
		out  bool // below an excluded path, where the path doesn't matter any more
	}
	seen := map[visit]bool{}
	type onBlob func(id objects.ID, path string, out bool)
	read := w.trees.keep // the selected commit's trees are needed again
	var walk func(id objects.ID, path string, out bool, blob onBlob) error
	walk = func(id objects.ID, path string, out bool, blob onBlob) error {
		v := visit{id, path, out}
		if out {
			v.path = ""
		}
		if seen[v] {
			return nil
		}
		seen[v] = true
		t, err := read(id, path)
		if err != nil {
			return err
		}
		for i := range t.entries {
			e := &t.entries[i]
			at := join(path, e.name)
			ex := out || w.excluded(at, e.mode == modeTree)
			switch e.mode {
			case modeTree:
				if err := walk(e.id, at, ex, blob); err != nil {
					return err
				}
			case modeGitlink:
			default:
				blob(e.id, at, ex)
			}
		}
		return nil
	}
	kept := map[objects.ID]string{}
	for i, c := range h.commits {
		if err := ctx.Err(); err != nil {
			return err
		}
		root, found, err := w.root(c)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		err = walk(root, w.subpath, false, func(id objects.ID, path string, out bool) {
			if out {
				w.hidden[id] = true
			} else if i == 0 {
				kept[id] = path
			}
		})
		if err != nil {
			return err
		}
		read = w.trees.get
	}
	for id, path := range kept {
		if w.hidden[id] && id != emptyBlob {
			w.copies = append(w.copies, path)
		}
		delete(w.hidden, id)
	}
	slices.Sort(w.copies)
	return nil
}

// rewriteCommit keeps author, committer, encoding and message of a commit.
func rewriteCommit(raw []byte, tree objects.ID, parents []objects.ID) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", tree)
	for _, p := range parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	head, message, _ := bytes.Cut(raw, []byte("\n\n"))
	for _, line := range bytes.Split(head, []byte("\n")) {
		for _, field := range []string{"author ", "committer ", "encoding "} {
			if bytes.HasPrefix(line, []byte(field)) {
				b.Write(line)
				b.WriteByte('\n')
			}
		}
	}
	b.WriteByte('\n')
	b.Write(message)
	return b.Bytes()
}
