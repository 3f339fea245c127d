package diff

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"tine/snapshot"
	"tine/snapshot/content"
	"tine/snapshot/export"
	"tine/snapshot/image"
	"tine/snapshot/image/imagetest"
)

// model is a tree as a map, from which images are made whose inode numbers say what is what.
type model struct {
	files map[string]*entry // by path; directories follow from them
	dirs  map[string]*entry
	next  uint64
}

type entry struct {
	ino  uint64
	mode uint32
	data string
	link []byte // gitlink
	uid  uint32
	when int64
}

func newModel() *model {
	return &model{files: map[string]*entry{}, dirs: map[string]*entry{"": {ino: 1, mode: 0o040755}}, next: 2}
}

func (m *model) clone() *model {
	c := &model{files: map[string]*entry{}, dirs: map[string]*entry{}, next: m.next}
	seen := map[*entry]*entry{}
	for p, e := range m.files {
		if seen[e] == nil {
			n := *e
			seen[e] = &n
		}
		c.files[p] = seen[e]
	}
	for p, e := range m.dirs {
		n := *e
		c.dirs[p] = &n
	}
	return c
}

func (m *model) mkdir(p string) *entry {
	if e := m.dirs[p]; e != nil {
		return e
	}
	m.mkdir(parent(p))
	e := &entry{ino: m.next, mode: 0o040755}
	m.next++
	m.dirs[p] = e
	return e
}

func parent(p string) string {
	if d := path.Dir(p); d != "." {
		return d
	}
	return ""
}

func (m *model) put(p, data string, mode uint32) *entry {
	m.mkdir(parent(p))
	e := &entry{ino: m.next, mode: mode, data: data}
	m.next++
	m.files[p] = e
	return e
}

func (m *model) remove(p string) {
	for q := range m.files {
		if q == p || strings.HasPrefix(q, p+"/") {
			delete(m.files, q)
		}
	}
	for q := range m.dirs {
		if q != "" && (q == p || strings.HasPrefix(q, p+"/")) {
			delete(m.dirs, q)
		}
	}
}

func (m *model) rename(p, to string) {
	m.mkdir(parent(to))
	move := func(all map[string]*entry) {
		for q, e := range all {
			if q == p || strings.HasPrefix(q, p+"/") {
				delete(all, q)
				all[to+q[len(p):]] = e
			}
		}
	}
	move(m.files)
	move(m.dirs)
}

// build makes the tree's image. All paths of one *entry are names of one inode.
func (m *model) build(t *testing.T) image.Files {
	t.Helper()
	b := image.NewBuilder(content.SHA1)
	tree := &imagetest.Tree{Contents: imagetest.NewContents()}
	node := func(e *entry) image.Node {
		return image.Node{Ino: e.ino, Mode: e.mode, Mtime: image.Time{Sec: e.when}, Btime: image.Time{Sec: int64(e.ino)}, Gitlink: e.link, UID: e.uid}
	}
	for p, e := range m.dirs {
		b.Add(node(e))
		if p != "" {
			b.AddEntry(m.dirs[parent(p)].ino, path.Base(p), e.ino)
		}
	}
	seen := map[uint64]bool{}
	for p, e := range m.files {
		b.AddEntry(m.dirs[parent(p)].ino, path.Base(p), e.ino)
		if seen[e.ino] {
			continue
		}
		seen[e.ino] = true
		n := node(e)
		if typ := e.mode & modeType; typ == modeRegular || typ == modeSymlink {
			n.Size = int64(len(e.data))
			n.Content = tree.Contents.Put([]byte(e.data))
		}
		b.Add(n)
	}
	b.SetNextIno(m.next)
	tree.Image = imagetest.Open(t, b)
	return tree
}

func gitRun(t *testing.T, dir string, stdin []byte, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent")
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		os.WriteFile("/tmp/failed.patch", stdin, 0o644)
		t.Fatalf("git %v: %v\n%.2000s", args, err, out)
	}
	return string(out)
}

func treeID(t *testing.T, f image.Files) string {
	t.Helper()
	id, err := snapshot.GitTree(context.Background(), f, content.SHA1, func(id content.ID, _ content.ObjectFormat) (content.ID, error) { return id, nil })
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(id)
}

// workTree exports a into a git repository whose index has it.
func workTree(t *testing.T, a image.Files) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "w")
	if err := export.ToDir(context.Background(), a, dir, export.Options{}); err != nil {
		t.Fatal(err)
	}
	gitRun(t, dir, nil, "init", "-q")
	gitRun(t, dir, nil, "config", "core.quotePath", "true")
	gitRun(t, dir, nil, "add", "-A")
	gitRun(t, dir, nil, "clean", "-qffd") // empty directories, which a check-out does not have
	return dir
}

// checkAgainstGit applies the patch to a with git and wants b; and compares name-status with git's.
func checkAgainstGit(t *testing.T, a, b image.Files) {
	t.Helper()
	ctx := context.Background()
	changes, err := Trees(ctx, a, b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var patch bytes.Buffer
	if _, err := Patch(ctx, &patch, a, b, content.SHA1, changes); err != nil {
		t.Fatal(err)
	}
	dir := workTree(t, a)
	before := strings.TrimSpace(gitRun(t, dir, nil, "write-tree"))
	if patch.Len() > 0 {
		gitRun(t, dir, patch.Bytes(), "apply", "--index", "--whitespace=nowarn", "-")
	}
	after := strings.TrimSpace(gitRun(t, dir, nil, "write-tree"))
	if want := treeID(t, b); after != want {
		os.WriteFile("/tmp/failed.patch", patch.Bytes(), 0o644)
		t.Fatalf("the patch applied gives %s, want %s:\n%s", after, want, gitRun(t, dir, nil, "diff-index", "--name-status", want))
	}
	var ns bytes.Buffer
	if err := NameStatus(&ns, changes); err != nil {
		t.Fatal(err)
	}
	want := strings.Split(gitRun(t, dir, nil, "diff", "--name-status", "--no-renames", before, after), "\n")
	var got []string
	for _, l := range strings.Split(ns.String(), "\n") {
		if w := strings.Split(l, "\t"); len(w) == 3 {
			got = append(got, "D\t"+w[1], "A\t"+w[2])
		} else {
			got = append(got, l)
		}
	}
	sort.Strings(got)
	sort.Strings(want)
	if !slices.Equal(got, want) {
		t.Fatalf("name-status:\n%v\ngit says:\n%v", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	stats, err := Stats(ctx, a, b, changes)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteStat(new(bytes.Buffer), stats, 80); err != nil {
		t.Fatal(err)
	}
	if patch.Len() > 0 { // and back
		gitRun(t, dir, patch.Bytes(), "apply", "-R", "--index", "--whitespace=nowarn", "-")
		if back := strings.TrimSpace(gitRun(t, dir, nil, "write-tree")); back != before {
			t.Fatalf("the patch undone gives %s, want %s", back, before)
		}
	}
}

var nasty = []string{"plain", "sp ace", "tab\tbed", "new\nline", "quo\"te", "back\\slash", "ü", "\xff\xfe", " lead", "trail ", "a => b", "{x}", "-dash", "b", "a", "#c", "\x01", "'", "$(x)"}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(60) {
		fmt.Fprintf(&b, "%d%s\n", r.IntN(20), strings.Repeat("x", r.IntN(3)))
	}
	s := b.String()
	switch r.IntN(6) {
	case 0:
		s = strings.TrimSuffix(s, "\n")
	case 1:
		s += "\x00\xff" + s
	case 2:
		s = strings.ReplaceAll(s, "\n", "\r\n")
	}
	return s
}

// change makes random edits.
func (m *model) change(r *rand.Rand) {
	pick := func(all map[string]*entry) string {
		keys := make([]string, 0, len(all))
		for k := range all {
			if k != "" {
				keys = append(keys, k)
			}
		}
		if len(keys) == 0 {
			return ""
		}
		sort.Strings(keys)
		return keys[r.IntN(len(keys))]
	}
	fresh := func() string {
		dir := ""
		if r.IntN(3) > 0 {
			dir = pick(m.dirs)
		}
		p := dir + "/" + nasty[r.IntN(len(nasty))]
		if dir == "" {
			p = p[1:]
		}
		if r.IntN(4) == 0 {
			p += "/" + nasty[r.IntN(len(nasty))]
		}
		for q := p; q != ""; q = parent(q) {
			if m.files[q] != nil {
				return ""
			}
		}
		if m.dirs[p] != nil {
			return ""
		}
		return p
	}
	modes := []uint32{0o100644, 0o100755}
	f, p := pick(m.files), fresh()
	e := m.files[f]
	switch r.IntN(12) {
	case 0, 1, 2:
		if p != "" {
			m.put(p, randomText(r), modes[r.IntN(2)])
		}
	case 3:
		if p != "" {
			m.put(p, nasty[r.IntN(len(nasty))], 0o120777)
		}
	case 4:
		if f != "" {
			m.remove(f)
		}
	case 5:
		if d := pick(m.dirs); d != "" && r.IntN(3) == 0 {
			m.remove(d)
		}
	case 6:
		if f != "" && p != "" && !strings.HasPrefix(p, f+"/") {
			m.rename(f, p)
		}
	case 7:
		if d := pick(m.dirs); d != "" && p != "" && !strings.HasPrefix(p, d+"/") {
			m.rename(d, p)
		}
	case 8:
		if e != nil && e.mode&modeType == modeRegular {
			e.mode = modes[r.IntN(2)]
		}
	case 9:
		if e != nil && e.mode&modeType == modeRegular {
			lines := strings.SplitAfter(e.data, "\n")
			lines[r.IntN(len(lines))] = randomText(r)
			e.data = strings.Join(lines, "")
		}
	case 10:
		if e != nil { // another type under the same path
			m.remove(f)
			switch r.IntN(3) {
			case 0:
				m.put(f, "target", 0o120777)
			case 1:
				m.put(f+"/"+nasty[r.IntN(len(nasty))], "in a directory now", 0o100644)
			case 2:
				m.put(f, randomText(r), 0o100644)
			}
		}
	case 11:
		if e != nil && p != "" && e.mode&modeType == modeRegular {
			m.mkdir(parent(p))
			m.files[p] = e // a hard link
		}
	}
}

func TestPatchAppliesWithGit(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 8
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		m := newModel()
		for range 30 {
			m.change(r)
		}
		n := m.clone()
		for range 1 + r.IntN(25) {
			n.change(r)
		}
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { checkAgainstGit(t, m.build(t), n.build(t)) })
	}
}
