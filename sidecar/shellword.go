package sidecar

import "strings"

// ShellWord quotes s where a shell would not take it as one word of itself, so that commands in hints can be copied.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 0x80 || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("/._-+=:,@%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
