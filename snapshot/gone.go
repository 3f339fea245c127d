package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tine/snapshot/content"
)

// SourcesGoneError says that a content, which the store doesn't have, may be in sources that can't be opened: a
// repository was moved or removed.
type SourcesGoneError struct{ Sources []GoneSource }

// GoneSource is a source that can't be opened, and why.
type GoneSource struct {
	ID  string
	Err error
}

// goneShown is how many sources a message names.
const goneShown = 4

func (e *SourcesGoneError) Error() string { return e.whys() + "; " + putBack }

func (e *SourcesGoneError) whys() string {
	var whys []string
	for _, g := range e.Sources[:min(len(e.Sources), goneShown)] {
		whys = append(whys, g.Err.Error())
	}
	if n := len(e.Sources) - goneShown; n > 0 {
		whys = append(whys, fmt.Sprintf("%d more can't be opened", n))
	}
	return strings.Join(whys, ", or ")
}

// putBack is what helps where a source is gone.
const putBack = "put the repository back where it was, or import again from where it is now"

// Unwrap gives the reasons.
func (e *SourcesGoneError) Unwrap() []error {
	var errs []error
	for _, g := range e.Sources {
		errs = append(errs, g.Err)
	}
	return errs
}

// of keeps those that a checkpoint names; it is nil if all of those can be opened. A checkpoint that names none may need any.
func (e *SourcesGoneError) of(sources []string) *SourcesGoneError {
	if len(sources) == 0 {
		return e
	}
	one := &SourcesGoneError{}
	for _, g := range e.Sources {
		if slices.Contains(sources, g.ID) {
			one.Sources = append(one.Sources, g)
		}
	}
	if len(one.Sources) == 0 {
		return nil
	}
	return one
}

// checkpointContents are what one checkpoint has.
type checkpointContents struct {
	store   *Store
	sources string // separated by commas
}

// Contents is Open for the contents of a checkpoint: what is missing is blamed on the sources of that checkpoint, not on
// others that are gone, too. Openers of the same sources are equal, so that they can be shared by comparing them.
func (s *Store) Contents(c Checkpoint) content.Opener {
	return checkpointContents{s, strings.Join(c.Sources, ",")}
}

func (c checkpointContents) Open(id content.ID) (content.Reader, error) {
	r, err := c.store.Open(id)
	var gone *SourcesGoneError
	if err == nil || !errors.As(err, &gone) {
		return r, err
	}
	if one := gone.of(c.ids()); one != nil {
		return nil, &content.MissingError{ID: id, Cause: one}
	}
	return nil, &content.MissingError{ID: id, Cause: errors.New("the repository that it was imported from is there, but has it no more; fetch its commit into that again")}
}

func (c checkpointContents) ids() []string {
	if c.sources == "" {
		return nil
	}
	return strings.Split(c.sources, ",")
}

// dependents are the contents that checks have found in no source, by the sources that are gone.
type dependents map[string]*dependent

type dependent struct {
	gone             *SourcesGoneError
	contents         map[content.ID]bool
	path, checkpoint string // an example
}

// add takes a content's error, if it is that the sources of the checkpoint are gone.
func (d dependents) add(c *Checkpoint, id content.ID, err error, path func() string) bool {
	var gone *SourcesGoneError
	if !errors.As(err, &gone) {
		return false
	}
	if gone = gone.of(c.Sources); gone == nil {
		return false
	}
	var ids []string
	for _, g := range gone.Sources {
		ids = append(ids, g.ID)
	}
	slices.Sort(ids)
	key := strings.Join(ids, " or ")
	if d[key] == nil {
		d[key] = &dependent{gone: gone, contents: map[content.ID]bool{}, path: path(), checkpoint: c.ID}
	}
	if id.Algo.IsLoose() {
		id = id.Blob()
	}
	d[key].contents[id] = true
	return true
}

// report tells of each as one problem, however many contents depend on it.
func (d dependents) report(report func(Problem)) {
	for _, key := range slices.Sorted(maps.Keys(d)) {
		one := d[key]
		depend := "1 content depends on it"
		if n := len(one.contents); n > 1 {
			depend = fmt.Sprintf("%d contents depend on it", n)
		}
		report(Problem{Kind: "source", Object: key,
			Err: fmt.Errorf("%s; %s, such as %q of checkpoint %s; %s", one.gone.whys(), depend, one.path, short(one.checkpoint), putBack)})
	}
}
