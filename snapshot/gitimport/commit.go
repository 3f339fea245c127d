package gitimport

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"tine/snapshot/gitimport/objects"
)

// commit is one commit with what an import needs of it.
type commit struct {
	id      objects.ID
	raw     []byte
	tree    objects.ID
	parents []objects.ID
	seconds int64 // committer's time
}

func (r *Repository) readCommit(db *objects.DB, id objects.ID) (*commit, error) {
	what := "commit " + id.String()[:12]
	typ, raw, err := db.Read(id)
	if err != nil {
		return nil, r.objectError(err, id, what)
	}
	if typ != objects.Commit {
		return nil, &CorruptError{ID: id, What: what, Why: "it is a " + typ.String()}
	}
	c, why := parseCommit(id, raw)
	if why != "" {
		return nil, &CorruptError{ID: id, What: what, Why: why}
	}
	return c, nil
}

// parseCommit reads a commit's header; why tells what is wrong with it.
func parseCommit(id objects.ID, raw []byte) (c *commit, why string) {
	c = &commit{id: id, raw: raw}
	rest := raw
	tree, rest, ok := hexLine(rest, "tree ")
	if !ok {
		return nil, "it has no tree"
	}
	c.tree = tree
	for {
		p, after, ok := hexLine(rest, "parent ")
		if !ok {
			break
		}
		c.parents = append(c.parents, p)
		rest = after
	}
	for len(rest) > 0 && rest[0] != '\n' {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		if who, ok := bytes.CutPrefix(line, []byte("committer ")); ok {
			c.seconds = timeOf(who)
			return c, ""
		}
		rest = after
	}
	return nil, "it has no committer"
}

func hexLine(b []byte, prefix string) (id objects.ID, rest []byte, ok bool) {
	if !bytes.HasPrefix(b, []byte(prefix)) || len(b) < len(prefix)+41 || b[len(prefix)+40] != '\n' {
		return id, b, false
	}
	if _, err := hex.Decode(id[:], b[len(prefix):len(prefix)+40]); err != nil {
		return id, b, false
	}
	return id, b[len(prefix)+41:], true
}

// timeOf reads the seconds of "Name <mail> seconds zone"; what git couldn't read either is 0, as git shows it.
func timeOf(who []byte) int64 {
	i := bytes.LastIndexByte(who, '>')
	fields := strings.Fields(string(who[i+1:]))
	if i < 0 || len(fields) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || n > maxSeconds || n < -maxSeconds {
		return 0
	}
	return n
}

// maxSeconds keeps times in what file systems hold (ext4: year 2446 = 15e9 seconds).
const maxSeconds = 15_000_000_000

// history is the commits that a workspace gets, newest first by distance from the selected one.
type history struct {
	commits []*commit
	// shallow are those whose parents are left out.
	shallow []objects.ID
}

// history collects the commits at a distance of less than depth from the tip; depth 0 is all.
func (r *Repository) history(ctx context.Context, db *objects.DB, tip objects.ID, depth int) (*history, error) {
	cut, err := r.shallowCommits()
	if err != nil {
		return nil, err
	}
	h := &history{}
	seen := map[objects.ID]bool{tip: true}
	level := []objects.ID{tip}
	for n := 1; len(level) > 0; n++ {
		var next []objects.ID
		for _, id := range level {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			c, err := r.readCommit(db, id)
			if err != nil {
				return nil, err
			}
			h.commits = append(h.commits, c)
			if n == depth {
				if len(c.parents) > 0 {
					h.shallow = append(h.shallow, id)
				}
				continue
			}
			if cut[id] && len(c.parents) > 0 {
				// Going on without them would give this import another id than one from a full clone (L3).
				return nil, &MissingObjectError{ID: c.parents[0], What: "commit " + c.parents[0].String()[:12], Shallow: true}
			}
			for _, p := range c.parents {
				if !seen[p] {
					seen[p] = true
					next = append(next, p)
				}
			}
		}
		level = next
	}
	return h, nil
}

// shallowCommits are those at which the source repository's own history was cut.
func (r *Repository) shallowCommits() (map[objects.ID]bool, error) {
	b, err := objects.ReadRegular(filepath.Join(r.CommonDir, "shallow"), maxListFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &NotRepositoryError{r.CommonDir, "its list of shallow commits can't be read: " + reason(err)}
	}
	cut := map[objects.ID]bool{}
	for _, line := range strings.Fields(string(b)) {
		raw, err := hex.DecodeString(line)
		if err != nil || len(raw) != 20 {
			return nil, &FormatError{r.CommonDir, "its list of shallow commits is damaged"}
		}
		cut[objects.ID(raw)] = true
	}
	return cut, nil
}
