package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shown makes a file name safe to print: one with control characters, quotes or broken UTF-8 is quoted as git quotes
// it, so that a listing has one line a name and can't drive the reader's terminal.
func shown(name string) string {
	plain := utf8.ValidString(name)
	for _, r := range name {
		if !unicode.IsPrint(r) || r == '"' || r == '\\' {
			plain = false
		}
	}
	if plain {
		return name
	}
	var b strings.Builder
	b.WriteByte('"')
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == utf8.RuneError && n == 1 || !unicode.IsPrint(r):
			for _, c := range []byte(name[:n]) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		default:
			b.WriteRune(r)
		}
		name = name[n:]
	}
	b.WriteByte('"')
	return b.String()
}
