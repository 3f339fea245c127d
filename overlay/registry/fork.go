package registry

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tine/overlay"
)

// State is where a fork is in its life.
type State string

const (
	Ready    State = "ready"    // may be served
	Removing State = "removing" // its files are being removed; a removal that was interrupted goes on
)

// Fork is what is recorded of one fork.
type Fork struct {
	ID         string `json:"id"` // 32 lower-case hex digits
	Name       string `json:"name,omitempty"`
	Generation uint64 `json:"generation"`       // counts resets
	Parent     string `json:"parent,omitempty"` // id of the fork that it was forked from
	Base       string `json:"base"`             // checkpoint id
	// Layers, the oldest first; the last is the live one. Those before it are shared with other forks.
	Layers     []overlay.LayerID `json:"layers"`
	Owners     overlay.OwnerMap  `json:"owners"`
	Limits     overlay.Limits    `json:"limits"`
	Labels     map[string]string `json:"labels,omitempty"`
	State      State             `json:"state"`
	ScopeToken string            `json:"scope_token,omitempty"` // of the scope that owns it (C1)
	Created    time.Time         `json:"created"`
}

// Live is the layer that the fork writes to.
func (f *Fork) Live() overlay.LayerID { return f.Layers[len(f.Layers)-1] }

func (f Fork) clone() Fork {
	f.Layers = slices.Clone(f.Layers)
	f.Labels = maps.Clone(f.Labels)
	return f
}

// NewID makes an unused fork id.
func NewID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func isID(s string) bool {
	return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == ""
}

// check refuses what could not be read back or told apart.
func (f *Fork) check() error {
	seen := make(map[overlay.LayerID]bool, len(f.Layers))
	for _, l := range f.Layers {
		if l.IsZero() || seen[l] {
			return fmt.Errorf("fork %s: layer %s is zero or named twice", f.ID, l)
		}
		seen[l] = true
	}
	switch {
	case !isID(f.ID):
		return fmt.Errorf("not a fork id: %q", f.ID)
	case len(f.Layers) == 0:
		return fmt.Errorf("fork %s has no layer", f.ID)
	case f.Base == "":
		return fmt.Errorf("fork %s has no base", f.ID)
	case f.State == "":
		return fmt.Errorf("fork %s has no state", f.ID)
	case isID(f.Name) || len(f.Name) > 255:
		return fmt.Errorf("fork %s: the name %q looks like an id or is too long", f.ID, f.Name)
	}
	return nil
}

// NotFoundError says that no fork has this id, prefix or name.
type NotFoundError struct{ Ref string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("no fork %q", e.Ref) }

// AmbiguousError says that several forks' ids begin with a prefix.
type AmbiguousError struct {
	Prefix string
	IDs    []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q is the beginning of %d fork ids", e.Prefix, len(e.IDs))
}

// NameTakenError says that a name belongs to another fork.
type NameTakenError struct{ Name, Holder string }

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("the name %q is taken by fork %s", e.Name, e.Holder)
}

// CorruptError says that the log is damaged before its end.
type CorruptError struct {
	Path string
	Line int // from 1
	Why  string
}

func (e *CorruptError) Error() string { return fmt.Sprintf("%s, line %d: %s", e.Path, e.Line, e.Why) }
