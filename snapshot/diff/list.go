package diff

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"tine/snapshot/image"
)

// NameStatus writes changes as `git diff --name-status` does: STATUS<tab>PATH, and for renames R100 (or R050 where the
// contents differ too) with both paths. It lists what git would: no directories, and new links as additions. Changes of modes,
// owners and attributes count as modifications, times alone don't.
func NameStatus(w io.Writer, changes []Change) error {
	out := bufio.NewWriter(w)
	for i := range changes {
		c := &changes[i]
		switch {
		case c.Count > 0:
			fmt.Fprintf(out, "M\t%s\n", Quote(c.Path))
		case c.TimesOnly():
		case c.Status == TypeChanged && c.Old.Mode&modeType == modeDir:
			fmt.Fprintf(out, "A\t%s\n", Quote(c.Path))
		case c.Status == TypeChanged && c.New.Mode&modeType == modeDir:
			fmt.Fprintf(out, "D\t%s\n", Quote(c.Path))
		case c.IsDir() && !(c.Status == Modified && c.What&Gitlink != 0):
		case c.Status == Renamed:
			score := "R100"
			if c.What&(Content|Target) != 0 {
				score = "R050"
			}
			fmt.Fprintf(out, "%s\t%s\t%s\n", score, Quote(c.From), Quote(c.Path))
		case c.Status == Linked:
			fmt.Fprintf(out, "A\t%s\n", Quote(c.Path))
		default:
			fmt.Fprintf(out, "%c\t%s\n", c.Status, Quote(c.Path))
		}
	}
	return out.Flush()
}

// FileStat is what changed in one file, in lines.
type FileStat struct {
	Path, From     string // From for renames
	Added, Deleted int
	// Binary: not compared by lines; OldSize and NewSize are in bytes.
	Binary           bool
	OldSize, NewSize int64
}

// Stats counts the lines of each change that git would show.
func Stats(ctx context.Context, a, b image.Files, changes []Change) ([]FileStat, error) {
	var list []FileStat
	for i := range changes {
		c := &changes[i]
		for _, s := range gitChanges(a, b, c) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			st := FileStat{Path: c.Path, From: s.from, OldSize: s.old.size(), NewSize: s.new.size()}
			old, new, text, err := s.texts()
			if err != nil {
				return nil, fmt.Errorf("%q: %w", c.Path, err)
			}
			st.Binary = !text
			if text && !s.sameBytes {
				for _, e := range lineDiff(splitLines(old), splitLines(new)) {
					st.Added += e.add
					st.Deleted += e.del
				}
			}
			list = append(list, st)
		}
	}
	return list, nil
}

// WriteStat writes counts as `git diff --stat` does.
func WriteStat(w io.Writer, stats []FileStat, width int) error {
	out := bufio.NewWriter(w)
	name := func(s *FileStat) string {
		if s.From != "" {
			return Quote(s.From) + " => " + Quote(s.Path)
		}
		return Quote(s.Path)
	}
	long, most, added, deleted := 0, 1, 0, 0
	for i := range stats {
		long = max(long, len(name(&stats[i])))
		most = max(most, stats[i].Added+stats[i].Deleted)
		added += stats[i].Added
		deleted += stats[i].Deleted
	}
	long = min(long, max(20, width-30))
	bars := max(10, width-long-12)
	for i := range stats {
		s := &stats[i]
		n := name(s)
		if len(n) > long {
			n = "..." + n[len(n)-long+3:]
		}
		if s.Binary {
			fmt.Fprintf(out, " %-*s | Bin %d -> %d bytes\n", long, n, s.OldSize, s.NewSize)
			continue
		}
		scale := func(v int) int {
			if most <= bars || v == 0 {
				return v
			}
			return max(1, v*bars/most)
		}
		fmt.Fprintf(out, " %-*s | %5d %s%s\n", long, n, s.Added+s.Deleted, strings.Repeat("+", scale(s.Added)), strings.Repeat("-", scale(s.Deleted)))
	}
	if len(stats) > 0 {
		fmt.Fprintf(out, " %d files changed, %d insertions(+), %d deletions(-)\n", len(stats), added, deleted)
	}
	return out.Flush()
}
