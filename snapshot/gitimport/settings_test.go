package gitimport

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Configuration files of all kinds, read as git reads them, or refused where git refuses them.
func TestSettingsLikeGit(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{
		"", "# only a comment", "[core]\n\tbare = false ; comment\n\teditor = \"vim -c \\\"set x\\\"\"\n", "[core] bare = true\n",
		"[alias]\n\tx = \"!f() { echo a; }; f\"\n\ty = !git log \\\n  --oneline\n", "[core]\n\tbare\n\tworktree=/a b/c  \n",
		"[include]\n\tpath = /nonexistent\n", "[branch \"a.b\\\"c\\\\\"]\n\tremote = .\n", "[Section.Sub]\n\tKey = v\n", "\ufeff[core]\n\tbare = false\n",
		"[core]\r\n\tbare = false\r\n", "[core]\n\tx = a\\tb\\nc\n", "[core]\n\tx = \"a\" b \"c \" \n", "[core]\n\tempty =\n\tlast = \"  q\"  # c\n",
		"[a]\n\tb = \"unclosed\n", "[a\n", "x = 1\n", "[a]\n\t1x = 1\n", "[a]\n\tx y\n", "[a]\n\tx = \\q\n", "[remote \"o\"]\n\tpromisor = true\n[remote \"o\"]\n\tpromisor = false\n",
		"[core]\n\tx = a;b\n\ty = \"a;b\"\n\tz = a\\\\b\n", "[a \"\"]\nk=1", "[a] ; comment\n\tx = 1",
	} {
		path := dir + "/config"
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("git", "config", "--file", path, "--no-includes", "--list", "-z")
		cmd.Env = gitEnv()
		out, gitErr := cmd.Output()
		got, err := parseSettings(text)
		if (err == nil) != (gitErr == nil) {
			t.Errorf("%q: %v, git %v", text, err, gitErr)
			continue
		}
		if err != nil {
			continue
		}
		var want, have []string
		for _, line := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			if line != "" {
				if !strings.Contains(line, "\n") {
					line += "\ntrue"
				}
				want = append(want, line)
			}
		}
		for _, s := range got {
			name := s.section + "." + s.key
			if s.subsection != "" || strings.HasPrefix(text, "[a \"") {
				name = s.section + "." + s.subsection + "." + s.key
			}
			name = strings.TrimPrefix(name, ".")
			have = append(have, name+"\n"+s.value)
		}
		if strings.Join(have, "\x00") != strings.Join(want, "\x00") {
			t.Errorf("%q:\n%q\nwant\n%q", text, have, want)
		}
	}
}

func FuzzSettings(f *testing.F) {
	f.Add("[core]\n\tbare = \"x\\\n\" # c\n[a \"b\\\"\"] c")
	f.Fuzz(func(t *testing.T, text string) { parseSettings(text) })
}

func FuzzTree(f *testing.F) {
	f.Add([]byte("100644 a\x0012345678901234567890"))
	f.Add([]byte("40000 a\x0012345678901234567890160000 b\x0012345678901234567890"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		entries, why := parseTree(raw)
		if why != "" {
			return
		}
		duplicate(entries)
		again, why := parseTree(encodeTree(entries))
		if why != "" || len(again) != len(entries) {
			t.Fatalf("%q doesn't survive: %s", raw, why)
		}
	})
}

func FuzzCommit(f *testing.F) {
	f.Add([]byte("tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor a <b> 1 +0000\ncommitter a <b> 1 +0000\n\nx"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, why := parseCommit(emptyTree, raw)
		if why != "" {
			return
		}
		if _, why := parseCommit(emptyTree, rewriteCommit(raw, emptyTree, c.parents)); why != "" {
			t.Fatalf("%q can't be rewritten: %s", raw, why)
		}
	})
}
