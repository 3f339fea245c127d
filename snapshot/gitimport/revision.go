package gitimport

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"tine/snapshot/gitimport/objects"
)

// Resolve finds the commit that a revision names: a full or abbreviated id, a reference by git's search order, a
// name made by git describe, each followed by any of ~N, ^N, ^{commit} and ^{}. "" and "@" are HEAD. Annotated tags
// are peeled. What names no commit, or needs a reflog, is a *RevisionError.
func (r *Repository) Resolve(db *objects.DB, rev string) (objects.ID, error) {
	base, steps := rev, ""
	if i := strings.IndexAny(rev, "~^"); i >= 0 {
		base, steps = rev[:i], rev[i:]
	}
	fail := func(why string) (objects.ID, error) { return objects.ID{}, &RevisionError{rev, why} }
	switch {
	case strings.Contains(base, "@{"):
		return fail("reflog and upstream selectors are not read; name a commit or a branch")
	case strings.ContainsAny(base, ":\x00"):
		return fail("it would name a file or a tree, not a commit")
	case strings.Contains(base, ".."):
		return fail("it is a range, not a commit")
	case base == "" || base == "@":
		base = "HEAD"
	}
	id, err := r.resolveBase(db, rev, base)
	if err != nil {
		return objects.ID{}, err
	}
	if id, err = r.peel(db, rev, id); err != nil {
		return objects.ID{}, err
	}
	var from objects.ID // whose parent id is
	for steps != "" {
		var n int
		op := steps[0]
		steps = steps[1:]
		if op == '^' && strings.HasPrefix(steps, "{") {
			what, rest, ok := strings.Cut(steps[1:], "}")
			if !ok || what != "" && what != "commit" {
				return fail("of ^{...} only ^{} and ^{commit} name a commit")
			}
			steps = rest
			continue
		}
		digits := len(steps) - len(strings.TrimLeft(steps, "0123456789"))
		n = 1
		if digits > 0 {
			if n, err = strconv.Atoi(steps[:digits]); err != nil {
				return fail("impossible number")
			}
		}
		steps = steps[digits:]
		if steps != "" && steps[0] != '~' && steps[0] != '^' {
			return fail(fmt.Sprintf("unexpected %q", steps))
		}
		times, nth := n, 1
		if op == '^' {
			times, nth = min(n, 1), n
		}
		for range times {
			c, err := r.readCommit(db, id)
			if err != nil {
				return objects.ID{}, r.cutOff(err, from)
			}
			if nth > len(c.parents) {
				return fail(fmt.Sprintf("commit %s has %d parents", id, len(c.parents)))
			}
			from, id = id, c.parents[nth-1]
		}
	}
	if _, err := r.readCommit(db, id); err != nil {
		return objects.ID{}, r.cutOff(err, from)
	}
	return id, nil
}

// cutOff tells a parent that a shallow clone doesn't have from one that is lost.
func (r *Repository) cutOff(err error, child objects.ID) error {
	var missing *MissingObjectError
	if errors.As(err, &missing) {
		if cut, cerr := r.shallowCommits(); cerr == nil && cut[child] {
			return &MissingObjectError{ID: missing.ID, What: missing.What, Shallow: true}
		}
	}
	return err
}

// unshallow is what to do where a commit may be behind the end of a shallow clone's history; "" in other clones.
func (r *Repository) unshallow() string {
	if cut, err := r.shallowCommits(); err != nil || len(cut) == 0 {
		return ""
	}
	return "; this is a shallow clone, whose history is cut off: " + deepen
}

var described = regexp.MustCompile(`-g([0-9a-f]{4,40})$`)

func (r *Repository) resolveBase(db *objects.DB, rev, base string) (objects.ID, error) {
	if len(base) == 40 {
		if b, err := hex.DecodeString(base); err == nil {
			return objects.ID(b), nil // as git: a full id is never a reference's name
		}
	}
	for _, pattern := range []string{"%s", "refs/%s", "refs/tags/%s", "refs/heads/%s", "refs/remotes/%s", "refs/remotes/%s/HEAD"} {
		name := fmt.Sprintf(pattern, base)
		if pattern == "%s" && !strings.HasPrefix(name, "refs/") && strings.ToUpper(name) != name {
			continue // only HEAD, MERGE_HEAD and the like lie beside refs/
		}
		id, ok, err := r.reference(plumbing.ReferenceName(name))
		if err != nil {
			return objects.ID{}, &RevisionError{rev, err.Error()}
		}
		if ok {
			return id, nil
		}
	}
	if base == "HEAD" {
		if r.hasReferences() {
			return objects.ID{}, &RevisionError{rev, "HEAD is a branch without a commit; name another revision"}
		}
		return objects.ID{}, &EmptyError{r.CommonDir}
	}
	hx := base
	if m := described.FindStringSubmatch(base); m != nil {
		hx = m[1]
	}
	if len(hx) >= 4 && len(hx) <= 40 && strings.Trim(hx, "0123456789abcdef") == "" {
		ids, err := db.WithPrefix(hx)
		if err != nil {
			return objects.ID{}, r.objectError(err, objects.ID{}, "the object index")
		}
		var commits []objects.ID
		for _, id := range ids {
			if _, err := r.peel(db, rev, id); err == nil {
				commits = append(commits, id)
			}
		}
		switch {
		case len(commits) == 1:
			return commits[0], nil
		case len(commits) > 1:
			return objects.ID{}, &RevisionError{rev, fmt.Sprintf("ambiguous: %d commits begin with it", len(commits))}
		case len(ids) > 0:
			return objects.ID{}, &RevisionError{rev, "no object that begins with it is a commit"}
		}
	}
	if !r.hasReferences() {
		return objects.ID{}, &EmptyError{r.CommonDir}
	}
	return objects.ID{}, &RevisionError{rev, "no reference and no commit has that name" + r.unshallow()}
}

// maxSymbolic bounds chains of symbolic references, as git does.
const maxSymbolic = 5

func (r *Repository) reference(name plumbing.ReferenceName) (objects.ID, bool, error) {
	for range maxSymbolic {
		if err := r.readableReference(name); err != nil {
			return objects.ID{}, false, err
		}
		ref, err := r.refs.Reference(name)
		if err != nil {
			// go-git has one error for what is absent and another for names that can't exist; files in the way of a
			// name (refs/heads/a/b where refs/heads/a is a branch) give errors of the file system.
			return objects.ID{}, false, nil
		}
		if ref.Type() == plumbing.HashReference {
			return ref.Hash(), true, nil
		}
		name = ref.Target()
	}
	return objects.ID{}, false, errors.New("symbolic references go in a circle")
}

// readableReference refuses a loose reference that is there but isn't one: an older value of it may be packed.
func (r *Repository) readableReference(name plumbing.ReferenceName) error {
	for _, dir := range []string{r.GitDir, r.CommonDir} {
		path := filepath.Join(dir, string(name))
		st, err := os.Stat(path)
		switch {
		case err != nil || st.IsDir():
		case !st.Mode().IsRegular():
			return &objects.NotRegularError{Path: path}
		case st.Size() > maxRef:
			return &objects.TooLargeError{Path: path, Size: st.Size(), Max: maxRef}
		}
	}
	return nil
}

func (r *Repository) hasReferences() bool {
	found := false
	iter, err := r.refs.IterReferences()
	if err != nil {
		return true // something is there, if only something broken
	}
	_ = iter.ForEach(func(ref *plumbing.Reference) error {
		found = found || ref.Type() == plumbing.HashReference
		return nil
	})
	return found
}

// peel follows annotated tags to a commit.
func (r *Repository) peel(db *objects.DB, rev string, id objects.ID) (objects.ID, error) {
	for range 100 {
		typ, data, err := db.Read(id)
		if errors.Is(err, objects.ErrNotFound) {
			if r.Partial {
				return id, &MissingObjectError{ID: id, What: "the commit", Partial: true}
			}
			return id, &RevisionError{rev, "there is no object " + id.String() + r.unshallow()}
		}
		if err != nil {
			return id, r.objectError(err, id, "the commit")
		}
		switch typ {
		case objects.Commit:
			return id, nil
		case objects.Tag:
			line, _, _ := bytes.Cut(data, []byte("\n"))
			hx, ok := strings.CutPrefix(string(line), "object ")
			b, err := hex.DecodeString(hx)
			if !ok || err != nil || len(b) != 20 {
				return id, &CorruptError{ID: id, What: "tag " + rev, Why: "it names no object"}
			}
			id = objects.ID(b)
		default:
			return id, &RevisionError{rev, fmt.Sprintf("it is a %s, not a commit", typ)}
		}
	}
	return id, &RevisionError{rev, "tags that go on for ever"}
}

// objectError turns an object database's error into this package's.
func (r *Repository) objectError(err error, id objects.ID, what string) error {
	var c *objects.CorruptError
	switch {
	case errors.Is(err, objects.ErrNotFound):
		return &MissingObjectError{ID: id, What: what, Partial: r.Partial}
	case errors.As(err, &c):
		return &CorruptError{ID: id, What: what, Err: err}
	}
	return fmt.Errorf("read %s: %w", what, err)
}
