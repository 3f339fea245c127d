package gitimport

import (
	"fmt"

	"tine/snapshot/gitimport/objects"
)

// NotRepositoryError: there is no git repository at, or around, a path.
type NotRepositoryError struct {
	Path string
	Why  string
}

func (e *NotRepositoryError) Error() string {
	return fmt.Sprintf("not a git repository: %s: %s", e.Path, e.Why)
}

// FormatError: the repository is of a kind that can't be read, such as the SHA-256 object format.
type FormatError struct {
	Path string
	Why  string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("unsupported git repository %s: %s", e.Path, e.Why)
}

// EmptyError: the repository has no commit at all.
type EmptyError struct{ Path string }

func (e *EmptyError) Error() string {
	return fmt.Sprintf("empty repository: %s has no commit yet", e.Path)
}

// RevisionError: a revision names no commit, or more than one.
type RevisionError struct {
	Rev string
	Why string
}

func (e *RevisionError) Error() string { return fmt.Sprintf("unknown revision %q: %s", e.Rev, e.Why) }

// MissingObjectError: an object that the selected commit reaches is not in the repository.
type MissingObjectError struct {
	ID   objects.ID
	What string // "the blob of a/b", "tree", ...
	// Partial: the repository is a partial clone, so that this is to be expected.
	Partial bool
	// Shallow: the history is cut off before the commit.
	Shallow bool
}

// deepen is what gets a shallow clone more of its history.
const deepen = "fetch more with `git fetch --deepen=N`, or all with `git fetch --unshallow`"

func (e *MissingObjectError) Error() string {
	switch {
	case e.Partial:
		return fmt.Sprintf("partial clone: %s (%s) was never fetched; fetch it with `git fetch --refetch --no-filter`, or clone without --filter", e.What, e.ID)
	case e.Shallow:
		return fmt.Sprintf("shallow clone: history ends before %s (%s); name a later commit or ask for a smaller depth, or "+deepen, e.What, e.ID)
	}
	return fmt.Sprintf("corrupt repository: %s (%s) is missing", e.What, e.ID)
}

// CorruptError: an object is there but is not what it must be.
type CorruptError struct {
	ID   objects.ID
	What string
	Why  string
	Err  error // of the object database; may be nil
}

func (e *CorruptError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("corrupt repository: %s: %v", e.What, e.Err)
	}
	return fmt.Sprintf("corrupt repository: %s (%s): %s", e.What, e.ID, e.Why)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// PathError: a path of the commit can't be in a workspace, such as one named .git.
type PathError struct {
	Path string
	Why  string
}

func (e *PathError) Error() string { return fmt.Sprintf("can't import the path %q: %s", e.Path, e.Why) }

// RequestError: options that contradict each other or the repository.
type RequestError struct{ Why string }

func (e *RequestError) Error() string { return e.Why }
