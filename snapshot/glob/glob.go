// Package glob matches slash-separated paths against patterns in gitignore's language: the --exclude of imports, and
// the ignore files that decide what belongs to a work tree.
//
// A pattern without a slash (but at its end) matches a name in any directory; with one, the path from the root. "*" and
// "?" don't match a slash, "**" as a whole segment matches any number of directories, "[...]" is a set of bytes, a
// backslash takes the next byte literally, a slash at the end makes the pattern match directories only. Names are bytes:
// no letter case and no encoding is folded. A pattern that matches a directory stands for everything below it, which
// is the caller's to apply.
package glob

import (
	"fmt"
	"strings"
)

// Pattern is one compiled pattern.
type Pattern struct {
	text     string
	segments []string
	anchored bool
	// DirOnly: the pattern ended in a slash.
	DirOnly bool
}

// Error says why a text is no pattern.
type Error struct{ Pattern, Why string }

func (e *Error) Error() string { return fmt.Sprintf("bad pattern %q: %s", e.Pattern, e.Why) }

// Compile parses a pattern. What gitignore has beside patterns, comments and negation, isn't part of one: a leading '#'
// or '!' is that byte.
func Compile(text string) (Pattern, error) {
	p := Pattern{text: text}
	bad := func(why string) (Pattern, error) { return Pattern{}, &Error{text, why} }
	body := text
	if strings.HasSuffix(body, "/") {
		p.DirOnly = true
		body = strings.TrimSuffix(body, "/")
	}
	if rest, ok := strings.CutPrefix(body, "/"); ok {
		p.anchored = true
		body = rest
	}
	if body == "" {
		return bad("it is empty")
	}
	if strings.IndexByte(body, 0) >= 0 {
		return bad("it has a NUL byte")
	}
	p.segments = strings.Split(body, "/")
	if len(p.segments) > 1 {
		p.anchored = true
	}
	for i, s := range p.segments {
		if len(s) > 2 && strings.Trim(s, "*") == "" {
			p.segments[i] = "**" // as git reads it
		}
		switch s {
		case "":
			return bad("it has an empty segment")
		case ".", "..":
			return bad("no path has the segment " + s)
		}
		if why := check(s); why != "" {
			return bad(why)
		}
	}
	return p, nil
}

// String is the text that the pattern was compiled from.
func (p Pattern) String() string { return p.text }

// Match reports whether the pattern matches path itself, a relative path without "." and "..".
func (p Pattern) Match(path string, dir bool) bool {
	if p.DirOnly && !dir {
		return false
	}
	if !p.anchored {
		return segment(p.segments[0], path[strings.LastIndexByte(path, '/')+1:])
	}
	return match(p.segments, path)
}

func match(pat []string, path string) bool {
	for len(pat) > 0 {
		if pat[0] == "**" {
			for len(pat) > 1 && pat[1] == "**" {
				pat = pat[1:]
			}
			if len(pat) == 1 {
				return path != "" // "a/**" is what lies below a
			}
			for {
				if match(pat[1:], path) {
					return true
				}
				i := strings.IndexByte(path, '/')
				if i < 0 {
					return false
				}
				path = path[i+1:]
			}
		}
		if path == "" {
			return false
		}
		name, rest, more := strings.Cut(path, "/")
		if !segment(pat[0], name) {
			return false
		}
		pat = pat[1:]
		if len(pat) == 0 {
			return !more
		}
		path = rest // empty after the last name, which only a pattern at its end matches
	}
	return false
}

// segment matches one name. It backtracks to the last star only, so it takes O(len(pat)·len(name)).
func segment(pat, name string) bool {
	star, mark := -1, 0
	i, k := 0, 0
	for k < len(name) {
		if i < len(pat) {
			if pat[i] == '*' {
				star, mark = i, k
				i++
				continue
			}
			if ok, n := one(pat[i:], name[k]); ok {
				i, k = i+n, k+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		mark++
		i, k = star+1, mark
	}
	for i < len(pat) && pat[i] == '*' {
		i++
	}
	return i == len(pat)
}

// one matches a byte against what pat begins with, and tells that beginning's length.
func one(pat string, c byte) (bool, int) {
	switch pat[0] {
	case '?':
		return true, 1
	case '\\':
		return pat[1] == c, 2
	case '[':
		return set(pat, c)
	}
	return pat[0] == c, 1
}

// set matches a byte against the bracket expression that pat begins with. check has seen that it is well formed.
func set(pat string, c byte) (bool, int) {
	i := 1
	negate := pat[i] == '!' || pat[i] == '^'
	if negate {
		i++
	}
	found := false
	for first := true; first || pat[i] != ']'; first = false {
		if strings.HasPrefix(pat[i:], "[:") {
			if end := strings.Index(pat[i:], ":]"); end > 0 {
				found = found || class(pat[i+2:i+end], c)
				i += end + 2
				continue
			}
		}
		lo, n := literal(pat[i:])
		i += n
		hi := lo
		if pat[i] == '-' && pat[i+1] != ']' {
			hi, n = literal(pat[i+1:])
			i += 1 + n
		}
		found = found || lo <= c && c <= hi
	}
	return found != negate, i + 1
}

func literal(s string) (byte, int) {
	if s[0] == '\\' {
		return s[1], 2
	}
	return s[0], 1
}

func class(name string, c byte) bool {
	lower, upper, digit := 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9'
	switch name {
	case "alpha":
		return lower || upper
	case "alnum":
		return lower || upper || digit
	case "digit":
		return digit
	case "lower":
		return lower
	case "upper":
		return upper
	case "space":
		return c == ' ' || '\t' <= c && c <= '\r'
	case "blank":
		return c == ' ' || c == '\t'
	case "cntrl":
		return c < 32 || c == 127
	case "graph":
		return 32 < c && c < 127
	case "print":
		return 32 <= c && c < 127
	case "punct":
		return 32 < c && c < 127 && !lower && !upper && !digit
	case "xdigit":
		return digit || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
	}
	return false
}

var classes = "alpha alnum digit lower upper space blank cntrl graph print punct xdigit"

// check says why a segment is malformed, or "".
func check(s string) string {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i == len(s) {
				return "it ends in a backslash"
			}
		case '[':
			n, why := checkSet(s[i:])
			if why != "" {
				return why
			}
			i += n - 1
		}
	}
	return ""
}

// checkSet returns the length of the bracket expression that s begins with.
func checkSet(s string) (int, string) {
	const open = "a [ is not closed"
	i := 1
	if i < len(s) && (s[i] == '!' || s[i] == '^') {
		i++
	}
	member := func() string {
		if i < len(s) && s[i] == '\\' {
			i++
		}
		if i >= len(s) {
			return open
		}
		i++
		return ""
	}
	for first := true; ; first = false {
		if i >= len(s) {
			return 0, open
		}
		if s[i] == ']' && !first {
			return i + 1, ""
		}
		if strings.HasPrefix(s[i:], "[:") {
			if end := strings.Index(s[i:], ":]"); end > 0 {
				name := s[i+2 : i+end]
				if name == "" || strings.ContainsAny(name, " ") || !strings.Contains(" "+classes+" ", " "+name+" ") {
					return 0, "unknown character class [:" + name + ":]"
				}
				i += end + 2
				continue
			}
		}
		if why := member(); why != "" {
			return 0, why
		}
		if i+1 < len(s) && s[i] == '-' && s[i+1] != ']' {
			i++
			if why := member(); why != "" {
				return 0, why
			}
		}
	}
}
