package gitimport

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"

	"tine/snapshot"
	"tine/snapshot/image"
)

// digest covers names, attributes and bytes of a tree, independent of how images are laid out.
func digest(t *testing.T, files image.Files) string {
	h := sha256.New()
	var walk func(ino uint64, path string)
	walk = func(ino uint64, path string) {
		n, err := files.Node(ino)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%q %d %o %d %d %d %v %x\n", path, n.Ino, n.Mode, n.UID, n.GID, n.Size, n.Mtime, n.Gitlink)
		if n.Content.IsZero() {
			err := files.ReadDir(ino, 0, func(d image.Dirent) bool { walk(d.Ino, path+"/"+d.Name); return true })
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		sum := sha256.Sum256([]byte(readNode(t, files, n)))
		h.Write(sum[:])
	}
	walk(image.Root, "")
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// L3, always: what one commit's checkpoint has must never change, down to the bytes of pack and index. These values are
// only ever added to.
func TestL3_Golden(t *testing.T) {
	src := sample(t)
	if head := git(t, src, "rev-parse", "HEAD"); head != "65a68428fe1aea17ed4fdd634dd5fae5969ac439" {
		t.Fatalf("the sample is another one: %s", head)
	}
	for _, c := range []struct {
		req          Request
		id, contents string
	}{
		{Request{}, "fe070c11305226dc710d34d35c2ab483338988d68f7cb68db9ba5e6763d2cd4b", "92b92882630b8bf23ce29062a08273e4"},
		{Request{Depth: 2}, "8434522ef89b50acf0d1ef60a6007f3151a5b9b7e0e53b13422380ead47bd0be", "881ee33d622bce314155f88ece1bc6df"},
		{Request{FullHistory: true, Exclude: []string{"tests"}}, "287663d3dbee9042a7a30efe7da0e57b88472fc10c885835d40b59b625b5d0ce", "bed8bcf9ea55752f2de970925c3dc721"},
		{Request{Subpath: "src", FullHistory: true}, "1508ed655f0f910485fa8590d07fcd204e604ede0442752e6367c15fdfbb9382", "6e2d5683644bff939c8ac0cbef3f9e33"},
	} {
		c.req.Repo = src
		s := newStore(t)
		res := mustImport(t, s, c.req)
		files, err := s.Files(res.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got := digest(t, files); got != c.contents || res.ID != c.id {
			t.Errorf("%+v: %q, %q", c.req, res.ID, got)
		}
	}
}

// Imports of one commit into one store at the same time, by two openers of the store, are one checkpoint.
func TestConcurrentImports(t *testing.T) {
	src := sample(t)
	s := newStore(t)
	other, err := snapshot.Open(s.Dir(), snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			store := s
			if i%2 == 1 {
				store = other
			}
			res, err := Import(context.Background(), store, Request{Repo: src, Depth: 2, Eager: i%3 == 0})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = res.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("%q", ids)
		}
	}
	cleanGit(t, exported(t, other, ids[0]))
}
