package gitimport

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tine/snapshot"
)

func TestWhereRepositoriesAre(t *testing.T) {
	src := sample(t)
	want := mustImport(t, newStore(t), Request{Repo: src})
	tmp := t.TempDir()
	bare := tmp + "/bare.git"
	git(t, src, "clone", "-q", "--bare", src, bare)
	linked := tmp + "/linked"
	git(t, src, "worktree", "add", "-q", "--detach", linked)
	git(t, src, "config", "extensions.worktreeConfig", "true")
	git(t, linked, "config", "--worktree", "core.sparseCheckout", "false")
	alias := tmp + "/alias"
	os.Symlink(src, alias)
	shared := tmp + "/shared"
	git(t, src, "clone", "-q", "--shared", src, shared)
	nested := tmp + "/nested" // alternates of alternates
	git(t, src, "clone", "-q", "--shared", shared, nested)
	packed := tmp + "/packed"
	git(t, src, "clone", "-q", "--no-local", src, packed)
	git(t, packed, "pack-refs", "--all")
	os.RemoveAll(packed + "/.git/refs/heads")
	os.MkdirAll(packed+"/.git/refs/heads", 0o755)
	for _, path := range []string{src, src + "/.git", src + "/src/a/b", bare, linked, linked + "/bin", src + "/.git/worktrees/linked", alias, shared, nested, packed} {
		res, err := Import(context.Background(), newStore(t), Request{Repo: path})
		if err != nil || res.ID != want.ID {
			t.Errorf("%s: %v %v", path, res, err)
		}
	}
	// An alternate that is named relative to the object directory.
	alt := shared + "/.git/objects/info/alternates"
	rel, _ := filepath.Rel(shared+"/.git/objects", src+"/.git/objects")
	os.WriteFile(alt, []byte("# a comment\n"+rel+"\n/nonexistent/objects\n"), 0o644)
	if res := mustImport(t, newStore(t), Request{Repo: shared}); res.ID != want.ID {
		t.Errorf("relative alternate: %s", res.ID)
	}
}

// A4: one identity for all ways to a repository.
func TestA4_Identity(t *testing.T) {
	src := sample(t)
	tmp := t.TempDir()
	git(t, src, "worktree", "add", "-q", "--detach", tmp+"/linked")
	git(t, src, "clone", "-q", "--shared", src, tmp+"/shared")
	os.Symlink(src, tmp+"/alias")
	type id struct{ dev, ino uint64 }
	of := func(path string) id {
		r, err := Locate(path)
		if err != nil {
			t.Fatal(err)
		}
		dev, ino, err := r.Identity()
		if err != nil {
			t.Fatal(err)
		}
		return id{dev, ino}
	}
	want := of(src)
	for _, same := range []string{"/linked", "/linked/src/a", "/alias", "/alias/.git"} {
		if got := of(tmp + same); got != want {
			t.Errorf("%s: %v, want %v", same, got, want)
		}
	}
	if of(tmp+"/shared") == want {
		t.Error("a borrower is not the lender")
	}
}

func TestRevisions(t *testing.T) {
	src := sample(t)
	git(t, src, "checkout", "-q", "-b", "side/branch", "HEAD~2")
	write(t, src+"/side", "side\n", 0o644)
	git(t, src, "add", "side")
	git(t, src, "commit", "-q", "-m", "side")
	git(t, src, "checkout", "-q", "trunk")
	git(t, src, "merge", "-q", "--no-ff", "-m", "merge", "side/branch")
	git(t, src, "tag", "light", "HEAD^")
	git(t, src, "update-ref", "refs/remotes/origin/up", "HEAD~2")
	git(t, src, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/up")
	for _, packed := range []bool{false, true} {
		if packed {
			git(t, src, "gc", "-q")
		}
		r, err := Locate(src)
		if err != nil {
			t.Fatal(err)
		}
		db := r.Objects()
		defer db.Close()
		head := git(t, src, "rev-parse", "HEAD")
		for _, rev := range []string{
			"HEAD", "@", "trunk", "heads/trunk", "refs/heads/trunk", "side/branch", "v1", "tags/v1", "light", "v1^{}", "v1^{commit}", "HEAD^", "HEAD^2", "HEAD~1",
			"HEAD~2", "HEAD^2~1", "HEAD^^", "HEAD~0", "HEAD^0", "@~", "origin/up", "origin", head, head[:7], head[:4], "v1-2-g" + head[:8],
		} {
			want := git(t, src, "rev-parse", "--verify", "--end-of-options", rev+"^{commit}")
			if got, err := r.Resolve(db, rev); err != nil || got.String() != want {
				t.Errorf("%q: %s %v, want %s", rev, got, err, want)
			}
		}
		for _, rev := range []string{
			"nothing", "HEAD~99", "HEAD^3", "HEAD:README", "HEAD^{tree}", "HEAD@{1}", "@{u}", "HEAD..trunk", "^HEAD", "HEAD~x", "trunk/x", "../../etc/passwd",
			"0000000000000000000000000000000000000000", git(t, src, "rev-parse", "HEAD:README"), git(t, src, "rev-parse", "HEAD^{tree}"), "a\x00b", "HEAD^{/first}",
		} {
			var e *RevisionError
			if got, err := r.Resolve(db, rev); !errors.As(err, &e) {
				t.Errorf("%q: %s %v", rev, got, err)
			}
		}
	}
}

// What can't be imported is refused by name, and nothing is left behind: no checkpoint, no source, no file.
func TestRefusals(t *testing.T) {
	tmp := t.TempDir()
	dir := func(name string) string {
		os.MkdirAll(tmp+"/"+name, 0o755)
		return tmp + "/" + name
	}
	empty := dir("empty")
	git(t, empty, "init", "-q")
	sha256 := dir("sha256")
	git(t, sha256, "init", "-q", "--object-format=sha256")
	unknown := dir("unknown")
	git(t, unknown, "init", "-q")
	git(t, unknown, "config", "core.repositoryformatversion", "1")
	git(t, unknown, "config", "extensions.fancy", "true")
	version := dir("version")
	git(t, version, "init", "-q")
	git(t, version, "config", "core.repositoryformatversion", "7")
	src := sample(t)
	partial := tmp + "/partial"
	git(t, src, "config", "uploadpack.allowFilter", "true")
	git(t, src, "clone", "-q", "--no-local", "--filter=blob:none", "--no-checkout", "file://"+src, partial)
	treeless := tmp + "/treeless"
	git(t, src, "clone", "-q", "--no-local", "--filter=tree:0", "--no-checkout", "file://"+src, treeless)
	bare := tmp + "/bare"
	git(t, src, "clone", "-q", "--bare", src, bare)
	shallow := tmp + "/shallow"
	git(t, src, "clone", "-q", "--no-local", "--depth=1", "file://"+src, shallow)
	damage := func(name, what string) string {
		to := tmp + "/" + name
		git(t, src, "clone", "-q", "--no-local", src, to)
		git(t, to, "config", "gc.auto", "0")
		pack, _ := filepath.Glob(to + "/.git/objects/pack/*.pack")
		b, _ := os.ReadFile(pack[0])
		os.RemoveAll(to + "/.git/objects/pack")
		os.WriteFile(tmp+"/x.pack", b, 0o644)
		f, _ := os.Open(tmp + "/x.pack")
		defer f.Close()
		gitIn(t, to, f, "unpack-objects", "-q")
		id := git(t, to, "rev-parse", what)
		path := to + "/.git/objects/" + id[:2] + "/" + id[2:]
		os.Chmod(path, 0o644)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "missing") {
			os.Remove(path)
			return to
		}
		b[len(b)/2] ^= 0x55
		os.WriteFile(path, b, 0o644)
		return to
	}
	evil := func(name, entry string) string {
		to := dir(name)
		git(t, to, "init", "-q", "-b", "main")
		blob := git(t, to, "hash-object", "-w", "--stdin")
		tree := mktree(t, to, blob, entry)
		commit := git(t, to, "commit-tree", "-m", "evil", tree)
		git(t, to, "update-ref", "refs/heads/main", commit)
		return to
	}
	file := tmp + "/file"
	os.WriteFile(file, nil, 0o644)
	dangling := dir("dangling")
	os.WriteFile(dangling+"/.git", []byte("gitdir: /nonexistent/x\n"), 0o644)

	for _, c := range []struct {
		name string
		req  Request
		want any
		says string
	}{
		{"no such path", Request{Repo: tmp + "/absent"}, new(*NotRepositoryError), "not a git repository"},
		{"a directory", Request{Repo: dir("plain")}, new(*NotRepositoryError), "not a git repository"},
		{"a file", Request{Repo: file}, new(*NotRepositoryError), "not a directory"},
		{"a .git that points nowhere", Request{Repo: dangling}, new(*NotRepositoryError), "/nonexistent/x"},
		{"no commit", Request{Repo: empty}, new(*EmptyError), "empty repository"},
		{"SHA-256", Request{Repo: sha256}, new(*FormatError), "object format sha256"},
		{"unknown extension", Request{Repo: unknown}, new(*FormatError), "unknown extension fancy"},
		{"unknown version", Request{Repo: version}, new(*FormatError), "version 7"},
		{"unknown revision", Request{Repo: src, Rev: "nonsense"}, new(*RevisionError), `unknown revision "nonsense"`},
		{"blobs never fetched", Request{Repo: partial}, new(*MissingObjectError), "partial clone: the blob of"},
		{"trees never fetched", Request{Repo: treeless}, new(*MissingObjectError), "partial clone: the root tree"},
		{"more than a shallow clone has", Request{Repo: shallow, Depth: 2}, new(*MissingObjectError), "shallow clone"},
		{"all of a shallow clone", Request{Repo: shallow, FullHistory: true}, new(*MissingObjectError), "shallow clone"},
		{"a revision before a shallow clone's history", Request{Repo: shallow, Rev: "HEAD~1"}, new(*MissingObjectError), "git fetch --deepen"},
		{"a parent before it", Request{Repo: shallow, Rev: "HEAD^"}, new(*MissingObjectError), "shallow clone: history ends before"},
		{"long before it", Request{Repo: shallow, Rev: "HEAD~2"}, new(*MissingObjectError), "shallow clone"},
		{"an id that a shallow clone doesn't have", Request{Repo: shallow, Rev: strings.Repeat("12", 20)}, new(*RevisionError), "git fetch --unshallow"},
		{"a short one", Request{Repo: shallow, Rev: "1212121"}, new(*RevisionError), "git fetch --unshallow"},
		{"damaged commit", Request{Repo: damage("commit", "HEAD")}, new(*CorruptError), "corrupt repository"},
		{"damaged tree", Request{Repo: damage("tree", "HEAD^{tree}")}, new(*CorruptError), "corrupt repository: the root tree"},
		{"damaged subtree", Request{Repo: damage("subtree", "HEAD:src/a")}, new(*CorruptError), "the tree of src/a"},
		{"damaged blob, eager", Request{Repo: damage("blob", "HEAD:bin/run.sh"), Eager: true}, new(*CorruptError), "the blob of bin/run.sh"},
		{"missing blob", Request{Repo: damage("missing-blob", "HEAD:bin/run.sh")}, new(*MissingObjectError), "the blob of bin/run.sh"},
		{"missing tree", Request{Repo: damage("missing-tree", "HEAD:bin")}, new(*MissingObjectError), "the tree of bin"},
		{"a .git in the tree", Request{Repo: evil("dotgit", ".git")}, new(*PathError), ".git"},
		{"a .GIT in the tree", Request{Repo: evil("dotgit2", ".GiT")}, new(*PathError), ".GiT"},
		{"a .. in the tree", Request{Repo: evil("dotdot", "..")}, new(*PathError), ".."},
		{"a long name", Request{Repo: evil("long", strings.Repeat("n", 256))}, new(*PathError), "255"},
		{"bad exclude", Request{Repo: src, Exclude: []string{"[a"}}, new(*RequestError), "not closed"},
		{"negated exclude", Request{Repo: src, Exclude: []string{"!a"}}, new(*RequestError), "taken back"},
		{"subpath that is absent", Request{Repo: src, Subpath: "nowhere"}, new(*RequestError), "no directory"},
		{"subpath that is a file", Request{Repo: src, Subpath: "README"}, new(*RequestError), "no directory"},
		{"subpath out of it", Request{Repo: src, Subpath: "../x"}, new(*RequestError), "subpath"},
		{"depth and full", Request{Repo: src, Depth: 2, FullHistory: true}, new(*RequestError), "exclude each other"},
		{"dirty and another revision", Request{Repo: src, Rev: "v1", Dirty: true}, new(*RequestError), "work tree"},
		{"dirty and bare", Request{Repo: bare, Dirty: true}, new(*RequestError), "bare repository"},
	} {
		s := newStore(t)
		res, err := Import(context.Background(), s, c.req)
		if err == nil || !errors.As(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, error %T %v", c.name, res, err, err)
		}
		nothingIn(t, c.name, s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := newStore(t)
	if _, err := Import(ctx, s, Request{Repo: src}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	nothingIn(t, "cancelled", s)
}

func nothingIn(t *testing.T, name string, s *snapshot.Store) {
	t.Helper()
	if list, err := s.List(); err != nil || len(list) > 0 {
		t.Errorf("%s: checkpoints %v %v", name, list, err)
	}
	if list, err := s.Sources(); err != nil || len(list) > 0 {
		t.Errorf("%s: sources %v %v", name, list, err)
	}
	for _, sub := range []string{"tmp", "images"} {
		if names, _ := os.ReadDir(filepath.Join(s.Dir(), sub)); len(names) > 0 {
			t.Errorf("%s: %s/%s is left", name, sub, names[0].Name())
		}
	}
}
