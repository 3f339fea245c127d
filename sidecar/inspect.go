package sidecar

import (
	"context"
	"strings"
)

// match is something that an id or a name may stand for.
type match struct {
	kind, id string
	exact    bool // the whole id or a name, not the beginning of an id
	describe func() (any, error)
}

// Inspect finds whatever an id, a shortened id or a name belongs to: a *Checkpoint, a *Fork or a *record.Run. Of several
// things with one name, the first of these kinds is shown; a beginning of several ids is ambiguous.
func (h *Host) Inspect(ctx context.Context, ref string) (any, error) {
	var matches []match
	if c, err := h.Resolve(ctx, ref); err == nil {
		named := !strings.HasPrefix(c.ID, ref) || c.ID == ref
		matches = append(matches, match{"checkpoint", c.ID, named, func() (any, error) { return h.Checkpoint(ctx, c.ID) }})
	} else if !isNotFound(err) {
		return nil, err
	}
	if f, err := h.findFork(ref); err == nil {
		matches = append(matches, match{"fork", f.ID, f.ID == ref || f.Name == ref, func() (any, error) { return h.Fork(ctx, f.ID) }})
	} else if !isNotFound(err) {
		return nil, err
	}
	if r, err := h.RunRecord(ref); err == nil {
		matches = append(matches, match{"run", r.ID, r.ID == ref || r.Name == ref, func() (any, error) { return r, nil }})
	} else if !isNotFound(err) {
		return nil, err
	}
	several := &AmbiguousError{Ref: ref}
	for _, m := range matches {
		if m.exact {
			return m.describe()
		}
		several.IDs = append(several.IDs, m.kind+" "+m.id)
	}
	switch len(matches) {
	case 0:
		return nil, &NotFoundError{"", ref}
	case 1:
		return matches[0].describe()
	}
	return nil, several
}

// Names lists what can stand for things of a kind ("checkpoint", "fork" or "run") on a command line, for completion:
// names, and shortened ids of what has none. What can't be read is left out.
func (h *Host) Names(kind string) []string {
	if h.store == nil {
		return nil
	}
	var names []string
	add := func(name, id string) {
		if name == "" {
			name = shortID(id)
		}
		names = append(names, name)
	}
	switch kind {
	case "checkpoint":
		list, _ := h.store.Names()
		for _, n := range list {
			add(n.Name, n.Checkpoint)
		}
	case "fork":
		list, _ := h.forks.List()
		for _, f := range list {
			add(f.Name, f.ID)
		}
	case "run":
		list, _ := h.runs.List()
		for _, r := range list {
			add(r.Name, r.ID)
		}
	}
	return names
}
