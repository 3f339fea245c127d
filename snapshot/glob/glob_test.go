package glob

import (
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		dir, want     bool
	}{
		{"*.o", "a.o", false, true},
		{"*.o", "x/y/a.o", false, true},
		{"*.o", "a.o.c", false, false},
		{"/*.o", "x/a.o", false, false},
		{"x/*.o", "x/a.o", false, true},
		{"x/*.o", "y/x/a.o", false, false},
		{"build/", "build", false, false},
		{"build/", "a/build", true, true},
		{"**/t", "t", false, true},
		{"**/t", "a/b/t", false, true},
		{"a/**", "a", true, false},
		{"a/**", "a/b/c", false, true},
		{"a/**/b", "a/b", false, true},
		{"a/**/b", "a/x/y/b", false, true},
		{"a**b", "aXXb", false, true},
		{"[a-c]?", "b!", false, true},
		{"[!a-c]", "b", false, false},
		{"[]x]", "]", false, true},
		{`\*`, "*", false, true},
		{`\*`, "x", false, false},
		{"[[:digit:]]", "7", false, true},
		{"a*a*a*a*b", strings.Repeat("a", 200), false, false},
		{"\xff*", "\xffx", false, true},
	} {
		p, err := Compile(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Match(c.path, c.dir); got != c.want {
			t.Errorf("%q on %q (directory %v): %v", c.pattern, c.path, c.dir, got)
		}
	}
	for _, s := range []string{"", "/", "a//b", "../x", "a/./b", "[a", `a\`, "[a-", "[[:foo:]]", "a\x00b"} {
		if _, err := Compile(s); err == nil {
			t.Errorf("%q compiled", s)
		}
	}
}

// Random patterns and paths against git's own matcher.
func TestMatchesLikeGit(t *testing.T) {
	dir := t.TempDir()
	run := func(stdin string, args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "GIT_CONFIG_NOSYSTEM=1")
		out, err := cmd.Output()
		if e, ok := err.(*exec.ExitError); err != nil && (!ok || e.ExitCode() != 1) {
			t.Fatalf("git %v: %v", args, err)
		}
		return string(out)
	}
	run("", "init", "-q")
	seed := rand.Int63()
	rnd := rand.New(rand.NewSource(seed))
	pick := func(parts []string, n int) string {
		s := ""
		for range 1 + rnd.Intn(n) {
			s += parts[rnd.Intn(len(parts))]
		}
		return s
	}
	for range 150 {
		text := pick([]string{"a", "b", "*", "**", "/", "?", "[ab]", "[!a]", "/**/", "**/"}, 6)
		p, err := Compile(text)
		if err != nil || text[0] == '!' || text[0] == '#' {
			continue
		}
		if wild := strings.IndexAny(text, "*?["); wild > 0 && strings.HasPrefix(text[wild:], "**") && text[wild-1] != '/' {
			continue // git cuts off the literal beginning first and then takes "a**/b" for "**/b"; its manual says otherwise
		}
		os.WriteFile(dir+"/.git/info/exclude", []byte(text+"\n"), 0o644)
		var paths []string
		for range 40 {
			path := strings.Trim(pick([]string{"a", "b", "/", "ab", "c"}, 6), "/")
			if path != "" && !strings.Contains(path, "//") {
				paths = append(paths, path)
			}
		}
		out := run(strings.Join(paths, "\n")+"\n", "check-ignore", "--no-index", "--stdin")
		ignored := map[string]bool{}
		for _, l := range strings.Split(out, "\n") {
			ignored[l] = true
		}
		for _, path := range paths {
			got := p.Match(path, false)
			for i := range path { // a parent that matches takes what is below with it
				if path[i] == '/' && p.Match(path[:i], true) {
					got = true
				}
			}
			if got != ignored[path] {
				t.Errorf("seed %d: pattern %q, path %q: %v, git %v", seed, text, path, got, ignored[path])
			}
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("a/[!b-d]*/**", "a/x/y")
	f.Add(`\[[[:alpha:]]`, "[b")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		if p, err := Compile(pattern); err == nil {
			p.Match(path, false)
			p.Match(path, true)
			_ = fmt.Sprint(p)
		}
	})
}
