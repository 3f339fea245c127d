package snapshot

import (
	"errors"
	"fmt"

	"tine/snapshot/content"
)

var (
	// ErrNoStore says that the directory holds no store.
	ErrNoStore = errors.New("no store")
	// ErrReadOnly says that the store was opened for reading, or that a failed sync has made it so.
	ErrReadOnly = errors.New("the store is read-only")
	// ErrNotFound is wrapped by errors for a checkpoint, name or source that does not exist.
	ErrNotFound = errors.New("not found")
	// ErrNoHold says that contents are stored or published without Store.Shared, so that gc's sweep could run between.
	ErrNoHold = errors.New("storing without a shared hold on the store")
)

// VersionError says that something on disk was written by another version of tine.
type VersionError struct {
	What       string
	Got, Known int
	Feature    string // an unknown feature instead of a version
}

func (e *VersionError) Error() string {
	if e.Feature != "" {
		return fmt.Sprintf("%s needs the feature %q, which this version of tine doesn't know", e.What, e.Feature)
	}
	return fmt.Sprintf("%s has format version %d, this version of tine knows version %d", e.What, e.Got, e.Known)
}

// CollisionError says that two different contents have one id: somebody attacks the hash (or a disk lies). The second
// one is refused.
type CollisionError struct {
	ID       content.ID
	Had, Got [32]byte // SHA-256
}

func (e *CollisionError) Error() string {
	return fmt.Sprintf("refused: two contents have the id %s (SHA-256 %x and %x): a hash collision", e.ID, e.Had, e.Got)
}

// AmbiguousError says that an abbreviated id has several meanings.
type AmbiguousError struct {
	Prefix  string
	Matches []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q is ambiguous: %d checkpoints begin with it (%s, %s, ...)", e.Prefix, len(e.Matches), short(e.Matches[0]), short(e.Matches[1]))
}

func short(id string) string { return id[:min(16, len(id))] }

// NameTakenError says that a name exists and names something else.
type NameTakenError struct{ Name, Checkpoint string }

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("the name %q is taken (checkpoint %s)", e.Name, short(e.Checkpoint))
}
