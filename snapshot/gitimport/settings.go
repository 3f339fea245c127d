package gitimport

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"tine/snapshot/gitimport/objects"
)

// setting is one variable of a git configuration file.
type setting struct {
	section    string // lower case
	subsection string
	key        string // lower case
	value      string // "true" where the file has no value
}

// settings are a file's variables in order; a later one of the same name wins. (go-git's reader of these files refuses
// some that git takes: a byte order mark, a variable on the line of its section, [section.subsection].) Includes are not
// followed: git doesn't either where it finds out what a repository is.
type settings []setting

// get returns the last value of a variable without a subsection, or "".
func (s settings) get(section, key string) string {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i].section == section && s[i].subsection == "" && s[i].key == key {
			return s[i].value
		}
	}
	return ""
}

// readSettings reads a file; one that is not there has no settings.
func readSettings(path string) (settings, error) {
	b, err := objects.ReadRegular(path, maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseSettings(string(b))
}

// settingsParser is at one place of a file.
type settingsParser struct {
	text string
	line int
}

func (p *settingsParser) fail(why string) error { return fmt.Errorf("line %d: %s", p.line, why) }

func (p *settingsParser) next() (byte, bool) {
	if p.text == "" {
		return 0, false
	}
	c := p.text[0]
	p.text = p.text[1:]
	if c == '\n' {
		p.line++
	}
	return c, true
}

func parseSettings(text string) (settings, error) {
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	p := &settingsParser{text, 1}
	var out settings
	var section, sub string
	for {
		c, ok := p.next()
		switch {
		case !ok:
			return out, nil
		case c == ' ' || c == '\t' || c == '\n':
		case c == '#' || c == ';':
			p.skipLine()
		case c == '[':
			var err error
			if section, sub, err = p.header(); err != nil {
				return nil, err
			}
		case isLetter(c):
			s := setting{section: section, subsection: sub}
			n := 0
			for n < len(p.text) && (isLetter(p.text[n]) || '0' <= p.text[n] && p.text[n] <= '9' || p.text[n] == '-') {
				n++
			}
			s.key = strings.ToLower(string(c) + p.text[:n])
			p.text = strings.TrimLeft(p.text[n:], " \t")
			var err error
			if s.value, err = p.value(); err != nil {
				return nil, err
			}
			out = append(out, s)
		default:
			return nil, p.fail(fmt.Sprintf("unexpected %q", c))
		}
	}
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func (p *settingsParser) skipLine() {
	for c, ok := p.next(); ok && c != '\n'; c, ok = p.next() {
	}
}

// header reads what follows "[": a name, and maybe a quoted subsection.
func (p *settingsParser) header() (section, sub string, err error) {
	end := strings.IndexAny(p.text, " \t]\"\n")
	if end < 1 || p.text[end] == '"' || p.text[end] == '\n' {
		return "", "", p.fail("malformed section")
	}
	section = strings.ToLower(p.text[:end])
	p.text = strings.TrimLeft(p.text[end:], " \t")
	if old, dotted, ok := strings.Cut(section, "."); ok { // the old form [section.subsection]
		section, sub = old, dotted
	}
	if strings.HasPrefix(p.text, `"`) {
		p.text = p.text[1:]
		for {
			c, ok := p.next()
			if ok && c == '\\' {
				c, ok = p.next()
			} else if ok && c == '"' {
				break
			}
			if !ok || c == '\n' {
				return "", "", p.fail("malformed section")
			}
			sub += string([]byte{c})
		}
	}
	if c, ok := p.next(); !ok || c != ']' {
		return "", "", p.fail("malformed section")
	}
	return section, sub, nil
}

// value reads what follows a variable's name, to the end of the line.
func (p *settingsParser) value() (string, error) {
	if !strings.HasPrefix(p.text, "=") {
		if p.text == "" || p.text[0] == '\n' || p.text[0] == '#' || p.text[0] == ';' {
			p.skipLine()
			return "true", nil
		}
		return "", p.fail("malformed variable")
	}
	p.text = strings.TrimLeft(p.text[1:], " \t")
	var b []byte
	quoted := false
	keep := 0 // length without white space at the end, unless it was quoted
	for {
		c, ok := p.next()
		switch {
		case !ok || c == '\n':
			if quoted {
				return "", p.fail("a quote is not closed")
			}
			return string(b[:keep]), nil
		case c == '"':
			quoted = !quoted
			keep = len(b)
			continue
		case !quoted && (c == '#' || c == ';'):
			p.skipLine()
			return string(b[:keep]), nil
		case c == '\\':
			if c, ok = p.next(); !ok {
				return "", p.fail("it ends in a backslash")
			}
			if c == '\n' {
				continue
			}
			i := strings.IndexByte(`ntb\"`, c)
			if i < 0 {
				return "", p.fail(fmt.Sprintf("unknown escape \\%c", c))
			}
			b = append(b, "\n\t\b\\\""[i])
			keep = len(b)
			continue
		}
		b = append(b, c)
		if quoted || c != ' ' && c != '\t' {
			keep = len(b)
		}
	}
}
