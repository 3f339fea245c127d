package gitimport

import (
	"sort"
	"strconv"
	"strings"

	"tine/snapshot"
	"tine/snapshot/gitimport/objects"
)

// Request says what to import. The zero value of every option is the default.
type Request struct {
	// Repo is a path of or in a repository (Locate).
	Repo string
	// Rev is a revision (Repository.Resolve); "" is HEAD.
	Rev string
	// Depth is how many commits deep the workspace's own history goes, 1 (the selected commit alone) by default.
	Depth int
	// FullHistory takes all of the selected commit's history.
	FullHistory bool
	// Exclude are patterns (package glob) of paths of the repository that must not be in the workspace nor in its history.
	Exclude []string
	// Subpath makes one directory of the repository the workspace's root.
	Subpath string
	// Eager copies all contents into the store, which then needs the repository no more.
	Eager bool
	// Dirty takes the work tree as it is, tracked and untracked files, not ignored ones, over HEAD's history.
	Dirty bool
	// Progress, if set, is called now and then from any goroutine. total is 0 while it isn't known.
	Progress func(stage string, done, total int64)
}

// Result is what an import made.
type Result struct {
	snapshot.Checkpoint
	// SourceCommit is the selected commit of the source; WorkspaceCommit what HEAD is in the workspace. They differ where
	// commits had to be rewritten (Exclude, Subpath).
	SourceCommit, WorkspaceCommit string
	// Source is the registered source of contents that are still in the repository only; "" when there are none.
	Source string
	// Warnings are sentences for people: what git would have done to files, patterns that matched nothing.
	Warnings []string
	// Repository is where it came from.
	Repository *Repository
}

func (q *Request) validate() error {
	switch {
	case q.Depth < 0:
		return &RequestError{"depth: a positive number of commits"}
	case q.Depth > 1 && q.FullHistory: // 1 is the default, which a caller may have written out
		return &RequestError{"depth and full history exclude each other"}
	case q.Dirty && q.Rev != "" && q.Rev != "HEAD" && q.Rev != "@":
		return &RequestError{"a dirty import takes the work tree, which is HEAD's; it can't take another revision"}
	}
	return nil
}

func (q *Request) depth() int {
	switch {
	case q.FullHistory:
		return 0
	case q.Depth == 0:
		return 1
	}
	return q.Depth
}

// rewrites reports whether the workspace's commits are other ones than the source's.
func (q *Request) rewrites() bool { return len(q.Exclude) > 0 || q.Subpath != "" }

func (q *Request) progress(stage string, done, total int64) {
	if q.Progress != nil {
		q.Progress(stage, done, total)
	}
}

// provenance is the record that lies beside the checkpoint: source ids are in it and not in the workspace.
func (q *Request) provenance(r *Repository, tip, head objects.ID) snapshot.Provenance {
	detail := map[string]string{"source_commit": tip.String(), "workspace_commit": head.String()}
	if q.Rev != "" {
		detail["rev"] = q.Rev
	}
	if q.FullHistory {
		detail["depth"] = "full"
	} else {
		detail["depth"] = strconv.Itoa(q.depth())
	}
	if len(q.Exclude) > 0 {
		list := append([]string(nil), q.Exclude...)
		sort.Strings(list)
		detail["exclude"] = strings.Join(list, "\n")
	}
	if q.Subpath != "" {
		detail["subpath"] = q.Subpath
	}
	if q.Dirty {
		detail["dirty"] = "true"
	}
	if q.Eager {
		detail["eager"] = "true"
	}
	return snapshot.Provenance{Kind: "git", Source: r.CommonDir, Detail: detail}
}
