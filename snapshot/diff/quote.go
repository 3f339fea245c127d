package diff

import (
	"fmt"
	"strings"
)

// Quote writes a path as git does with core.quotePath: as it is, or in double quotes with C escapes, octal ones for bytes
// that are not printable ASCII.
func Quote(path string) string {
	if !needsQuotes(path) {
		return path
	}
	return `"` + escape(path) + `"`
}

func needsQuotes(s string) bool {
	for _, c := range []byte(s) {
		if c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return true
		}
	}
	return false
}

func escape(s string) string {
	b := make([]byte, 0, len(s)+16)
	for _, c := range []byte(s) {
		switch c {
		case '\a':
			b = append(b, `\a`...)
		case '\b':
			b = append(b, `\b`...)
		case '\t':
			b = append(b, `\t`...)
		case '\n':
			b = append(b, `\n`...)
		case '\v':
			b = append(b, `\v`...)
		case '\f':
			b = append(b, `\f`...)
		case '\r':
			b = append(b, `\r`...)
		case '"', '\\':
			b = append(b, '\\', c)
		default:
			if c < 0x20 || c >= 0x7f {
				b = fmt.Appendf(b, `\%03o`, c)
			} else {
				b = append(b, c)
			}
		}
	}
	return string(b)
}

// quotePrefixed is Quote of prefix and path, with the prefix inside the quotes. A path with a component that ends in a space
// is quoted too: in a header without file lines git takes the space for the end of the name.
func quotePrefixed(prefix, path string) string {
	if strings.Contains(path, " /") && !needsQuotes(path) {
		return `"` + prefix + path + `"`
	}
	return Quote(prefix + path)
}
