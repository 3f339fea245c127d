package diff

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"tine/snapshot/content"
	"tine/snapshot/image"
)

func listed(t *testing.T, a, b image.Files) string {
	t.Helper()
	changes, err := Trees(context.Background(), a, b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range CollapseGit(changes) {
		s := fmt.Sprintf("%c %s", c.Status, c.Path)
		if c.From != "" {
			s += " from " + c.From
		}
		if c.What != 0 {
			s += " (" + strings.Join(c.What.Names(), ",") + ")"
		}
		if c.Count > 0 {
			s += fmt.Sprintf(" x%d", c.Count)
		}
		out = append(out, s)
	}
	return strings.Join(out, "\n")
}

func TestChangesAreNamedExactly(t *testing.T) {
	a := newModel()
	for _, p := range []string{"edit", "chmod", "chown", "touch", "gone", "old/x", "old/y", "linked", "type", "same", ".git/a", ".git/b"} {
		a.put(p, "contents of "+p+"\n", 0o100644)
	}
	a.put("link", "one", 0o120777)
	a.put("was-special", "", 0o010644)
	a.mkdir("quiet")
	b := a.clone()
	b.files["edit"].data += "more\n"
	b.files["chmod"].mode = 0o100600
	b.files["chown"].uid = 5
	b.files["touch"].when = 9
	b.remove("gone")
	b.rename("old", "new")
	b.files["new/y"].data = "edited too\n"
	b.files["hard"] = b.files["linked"]
	b.remove("type")
	b.put("type/in", "a directory now\n", 0o100644)
	b.files["link"].data = "two"
	b.put("n1", "new\n", 0o100755)
	b.files["n2"] = b.files["n1"]
	b.dirs[""].when = 5      // explained by its entries
	b.dirs["quiet"].when = 5 // not explained
	b.files[".git/a"].data = "x"
	b.remove(".git/b")
	fa, fb := a.build(t), b.build(t)
	want := `M .git x2
M chmod (mode)
M chown (owner)
M edit (content)
D gone
H hard from linked
M link (target)
A n1
H n2 from n1
A new
R new/x from old/x
R new/y from old/y (content)
D old
M quiet (times)
M touch (times)
T type (mode)
A type/in`
	if got := listed(t, fa, fb); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if got := listed(t, fa, fa); got != "" {
		t.Errorf("a tree differs from itself: %s", got)
	}
	// With what is known to be unchanged left out, the answer is the same.
	changed := map[uint64]bool{}
	for _, p := range []string{"edit", "chmod", "chown", "touch", "linked", "link", "new/y", ".git/a"} {
		changed[b.files[p].ino] = true
	}
	all, _ := Trees(context.Background(), fa, fb, Options{})
	some, err := Trees(context.Background(), fa, fb, Options{Changed: func(ino uint64) bool { return changed[ino] }})
	if err != nil || len(all) != len(some) {
		t.Errorf("%d changes, %d with a hint, %v", len(all), len(some), err)
	}
	var ns bytes.Buffer
	NameStatus(&ns, all)
	if want := "M\t.git/a\nD\t.git/b\nM\tchmod\nM\tchown\nM\tedit\nD\tgone\nA\thard\nM\tlink\nA\tn1\nA\tn2\nR100\told/x\tnew/x\nR050\told/y\tnew/y\nD\ttype\nA\ttype/in\n"; ns.String() != want {
		t.Errorf("name-status:\n%s", ns.String())
	}
	var patch bytes.Buffer
	left, err := Patch(context.Background(), &patch, fa, fb, content.SHA1, all)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(left); got != "[{chmod mode bits} {chown owner} {hard hard link (written as a copy)} {n2 hard link (written as a copy)}]" {
		t.Error(got)
	}
	if strings.Contains(patch.String(), ".git/") {
		t.Error("the patch reaches into .git")
	}
}

// Two imports number their inodes alike; that doesn't make one file another's new name.
func TestUnrelatedTreesHaveNoRenames(t *testing.T) {
	a, b := newModel(), newModel()
	a.put("x", "1", 0o100644)
	b.put("y", "2", 0o100644).ino = 2
	fa, fb := a.build(t), b.build(t)
	n, _ := fb.Lookup(1, "y")
	nb, _ := fb.Node(n.Ino)
	na, _ := fa.Node(2)
	if nb.Ino != na.Ino {
		t.Fatal("the test needs equal numbers")
	}
	na.Btime.Sec++
	if sameFile(&na, &nb) {
		t.Error("taken for one file")
	}
}

func TestPatchOfSubmodules(t *testing.T) {
	a := newModel()
	a.mkdir("gone").link = bytes.Repeat([]byte{1}, 20)
	a.mkdir("moved").link = bytes.Repeat([]byte{2}, 20)
	a.mkdir("filled").link = bytes.Repeat([]byte{3}, 20)
	b := a.clone()
	b.remove("gone")
	b.dirs["moved"].link = bytes.Repeat([]byte{4}, 20)
	b.put("filled/f", "x\n", 0o100644)
	b.mkdir("added").link = bytes.Repeat([]byte{5}, 20)
	fa, fb := a.build(t), b.build(t)
	changes, err := Trees(context.Background(), fa, fb, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var patch bytes.Buffer
	if _, err := Patch(context.Background(), &patch, fa, fb, content.SHA1, changes); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	gitRun(t, dir, nil, "init", "-q")
	for name, e := range a.dirs {
		if e.link != nil {
			os.Mkdir(dir+"/"+name, 0o755)
			gitRun(t, dir, nil, "update-index", "--add", "--cacheinfo", fmt.Sprintf("160000,%x,%s", e.link, name))
		}
	}
	gitRun(t, dir, patch.Bytes(), "apply", "--index", "-")
	if got, want := strings.TrimSpace(gitRun(t, dir, nil, "write-tree")), treeID(t, fb); got != want {
		t.Errorf("tree %s, want %s\n%s", got, want, patch.String())
	}
}

func TestPatchOfLargeFiles(t *testing.T) {
	noise := make([]byte, textLimit+1000)
	rand.NewChaCha8([32]byte{}).Read(noise)
	text := strings.Repeat("a line of a large text file\n", textLimit/20)
	a := newModel()
	a.put("bin", string(noise[:3<<20]), 0o100644)
	a.put("text", text, 0o100644)
	a.put("gone", string(noise[:2<<20]), 0o100644)
	b := a.clone()
	b.files["bin"].data += "tail"
	b.files["text"].data = "head\n" + text
	b.remove("gone")
	b.put("new", string(noise), 0o100755)
	fa, fb := a.build(t), b.build(t)
	changes, _ := Trees(context.Background(), fa, fb, Options{})
	var patch bytes.Buffer
	if _, err := Patch(context.Background(), &patch, fa, fb, content.SHA1, changes); err != nil {
		t.Fatal(err)
	}
	dir := workTree(t, fa)
	gitRun(t, dir, patch.Bytes(), "apply", "--index", "-")
	if got, want := strings.TrimSpace(gitRun(t, dir, nil, "write-tree")), treeID(t, fb); got != want {
		t.Errorf("tree %s, want %s", got, want)
	}
}

// Texts that differ beyond the search's bound.
func TestLineDiffOfVeryDifferentTexts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 5000, 20000} {
		var a, b [][]byte
		for i := range n {
			l := fmt.Appendf(nil, "%d\n", i)
			if r.IntN(3) > 0 {
				a = append(a, l)
			}
			if r.IntN(3) > 0 {
				b = append(b, l)
			}
			if r.IntN(4) == 0 {
				b = append(b, []byte("noise\n"))
			}
		}
		x, y, same := 0, 0, 0
		for _, e := range lineDiff(a, b) {
			for i := range e.same {
				if !bytes.Equal(a[x+i], b[y+i]) {
					t.Fatalf("%d lines: lines %d and %d are not the same", n, x+i, y+i)
				}
			}
			x, y, same = x+e.same+e.del, y+e.same+e.add, same+e.same
		}
		if x != len(a) || y != len(b) {
			t.Fatalf("%d lines: the edits cover %d and %d of %d and %d", n, x, y, len(a), len(b))
		}
		if n > 1 && same < n*4/9*9/10 {
			t.Errorf("%d lines: only %d found to be the same", n, same)
		}
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"a b": "a b", "ü": `"\303\274"`, "t\t": `"t\t"`, "q\"\\": `"q\"\\"`, "\x7f": `"\177"`} {
		if got := Quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
