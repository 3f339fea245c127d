package diff

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"fmt"
	"io"
	"strings"

	"tine/snapshot/content"
	"tine/snapshot/image"
)

// Left is a change that a git patch can't carry.
type Left struct{ Path, Why string }

// Patch writes changes as a git-format patch that `git apply` takes, binary files and symlinks included, and returns what git
// doesn't keep and the patch therefore lacks. Paths in any .git are left out without being listed.
func Patch(ctx context.Context, w io.Writer, a, b image.Files, f content.ObjectFormat, changes []Change) ([]Left, error) {
	p := &patcher{out: bufio.NewWriterSize(w, 64<<10), format: f}
	var left []Left
	for i := range changes {
		c := &changes[i]
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if inAnyGit(c.Path) || c.From != "" && inAnyGit(c.From) {
			continue
		}
		sections := gitChanges(a, b, c)
		if why := lost(c, len(sections) > 0); why != "" {
			left = append(left, Left{c.Path, why})
		}
		for j := range sections {
			if err := p.section(&sections[j]); err != nil {
				return nil, fmt.Errorf("patch of %q: %w", c.Path, err)
			}
		}
	}
	return left, p.out.Flush()
}

// lost says what of a change isn't in the patch.
func lost(c *Change, shown bool) string {
	var lost []string
	add := func(cond bool, what string) {
		if cond {
			lost = append(lost, what)
		}
	}
	special := func(n *image.Node) bool {
		t := n.Mode & modeType
		return t != modeRegular && t != modeSymlink && t != modeDir && t != 0
	}
	add(special(&c.Old) || special(&c.New), "special file")
	add(c.Status == Linked, "hard link (written as a copy)")
	add(c.What&Owner != 0, "owner")
	add(c.What&Xattrs != 0, "extended attributes")
	add(c.What&Mode != 0 && ((c.Old.Mode^c.New.Mode)&0o100 == 0 || !shown), "mode bits")
	return strings.Join(lost, ", ")
}

type patcher struct {
	out    *bufio.Writer
	format content.ObjectFormat
}

// section writes one file's part. The order of the lines is git's.
func (p *patcher) section(g *gitChange) error {
	old, new, text, err := g.texts()
	if err != nil {
		return err
	}
	from := g.path
	if g.from != "" {
		from = g.from
	}
	oldName, newName := quotePrefixed("a/", from), quotePrefixed("b/", g.path)
	fmt.Fprintf(p.out, "diff --git %s %s\n", oldName, newName)
	mode := ""
	switch {
	case g.old.node == nil:
		fmt.Fprintf(p.out, "new file mode %s\n", g.new.mode)
		oldName = "/dev/null"
	case g.new.node == nil:
		fmt.Fprintf(p.out, "deleted file mode %s\n", g.old.mode)
		newName = "/dev/null"
	case g.old.mode != g.new.mode:
		fmt.Fprintf(p.out, "old mode %s\nnew mode %s\n", g.old.mode, g.new.mode)
	default:
		mode = " " + g.old.mode
	}
	if g.from != "" {
		score := 100
		if !g.sameBytes {
			score = similarity(old, new)
		}
		fmt.Fprintf(p.out, "similarity index %d%%\nrename from %s\nrename to %s\n", score, Quote(g.from), Quote(g.path))
	}
	if g.sameBytes {
		return nil
	}
	oldID, err := g.old.id(p.format)
	if err != nil {
		return err
	}
	newID, err := g.new.id(p.format)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "index %s..%s%s\n", oldID, newID, mode)
	if text {
		p.text(old, new, oldName, newName)
		return nil
	}
	return p.binary(g)
}

// similarity is the share of the old bytes that both have at their ends: only a hint, git applies any number.
func similarity(old, new []byte) int {
	n := min(len(old), len(new))
	head := 0
	for head < n && old[head] == new[head] {
		head++
	}
	tail := 0
	for tail < n-head && old[len(old)-1-tail] == new[len(new)-1-tail] {
		tail++
	}
	return min(99, (head+tail)*100/max(1, len(old), len(new)))
}

// contextLines around each hunk.
const contextLines = 3

// text writes the hunks of a change of lines; none for an empty file that comes or goes.
func (p *patcher) text(old, new []byte, oldName, newName string) {
	la, lb := splitLines(old), splitLines(new)
	edits := lineDiff(la, lb)
	if len(la) == 0 && len(lb) == 0 {
		return
	}
	fmt.Fprintf(p.out, "--- %s\n+++ %s\n", fileLine(oldName), fileLine(newName))
	// A hunk is a run of edits with less than two contexts of equal lines between them.
	x, y := 0, 0 // where edits[i] starts
	for i := 0; i < len(edits); i++ {
		if edits[i].same > 0 {
			x, y = x+edits[i].same, y+edits[i].same
			continue
		}
		before := 0
		if i > 0 {
			before = min(contextLines, edits[i-1].same)
		}
		hx, hy := x-before, y-before
		dx, dy := before, before
		j := i
		for ; j < len(edits); j++ {
			e := edits[j]
			if e.same > 0 && (j == len(edits)-1 || e.same > 2*contextLines) {
				break
			}
			dx, dy = dx+e.same+e.del, dy+e.same+e.add
		}
		after := 0
		if j < len(edits) {
			after = min(contextLines, edits[j].same)
		}
		fmt.Fprintf(p.out, "@@ -%s +%s @@\n", span(hx, dx+after), span(hy, dy+after))
		for _, l := range la[hx : hx+before] {
			p.line(' ', l)
		}
		for ; i < j; i++ {
			e := edits[i]
			for _, l := range la[x : x+e.same] {
				p.line(' ', l)
			}
			for _, l := range la[x : x+e.del] {
				p.line('-', l)
			}
			for _, l := range lb[y : y+e.add] {
				p.line('+', l)
			}
			x, y = x+e.same+e.del, y+e.same+e.add
		}
		for _, l := range la[x : x+after] {
			p.line(' ', l)
		}
		i-- // the equal run at j is the loop's next
	}
}

// fileLine: a name with a space is followed by a tab, so that nobody takes what is behind the space for a time.
func fileLine(name string) string {
	if strings.Contains(name, " ") && name[0] != '"' {
		return name + "\t"
	}
	return name
}

func span(start, n int) string {
	switch n {
	case 0:
		return fmt.Sprintf("%d,0", start)
	case 1:
		return fmt.Sprintf("%d", start+1)
	}
	return fmt.Sprintf("%d,%d", start+1, n)
}

func (p *patcher) line(mark byte, line []byte) {
	p.out.WriteByte(mark)
	p.out.Write(line)
	if !bytes.HasSuffix(line, []byte{'\n'}) {
		p.out.WriteString("\n\\ No newline at end of file\n")
	}
}

// reverseLimit (1 MiB) is the largest old content that is written too, which `git apply -R` needs and nobody else.
const reverseLimit = 1 << 20

func (p *patcher) binary(g *gitChange) error {
	p.out.WriteString("GIT binary patch\n")
	if err := p.literal(&g.new); err != nil {
		return err
	}
	if g.old.size() <= reverseLimit {
		return p.literal(&g.old)
	}
	return nil
}

// literal writes a content: its size, then its zlib stream in lines of at most 52 bytes in git's base 85, each led by its
// length as a letter, then an empty line. Nothing is held in memory.
func (p *patcher) literal(s *side) error {
	r, err := s.open()
	if err != nil {
		return err
	}
	defer r.Close()
	fmt.Fprintf(p.out, "literal %d\n", r.Size())
	lines := &base85Lines{out: p.out}
	z := zlib.NewWriter(lines)
	if err := content.WriteTo(z, r); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	lines.flush()
	return p.out.WriteByte('\n')
}

// base85Lines encodes what is written to it.
type base85Lines struct {
	out *bufio.Writer
	buf [52]byte
	n   int
}

const base85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

func (l *base85Lines) Write(b []byte) (int, error) {
	total := len(b)
	for len(b) > 0 {
		k := copy(l.buf[l.n:], b)
		l.n, b = l.n+k, b[k:]
		if l.n == len(l.buf) {
			l.flush()
		}
	}
	return total, nil
}

func (l *base85Lines) flush() {
	if l.n == 0 {
		return
	}
	letter := byte('A' + l.n - 1)
	if l.n > 26 {
		letter = byte('a' + l.n - 27)
	}
	l.out.WriteByte(letter)
	clear(l.buf[l.n:])
	for i := 0; i < l.n; i += 4 {
		v := uint32(l.buf[i])<<24 | uint32(l.buf[i+1])<<16 | uint32(l.buf[i+2])<<8 | uint32(l.buf[i+3])
		var enc [5]byte
		for j := 4; j >= 0; j-- {
			enc[j] = base85[v%85]
			v /= 85
		}
		l.out.Write(enc[:])
	}
	l.out.WriteByte('\n')
	l.n = 0
}
