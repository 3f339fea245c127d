package objects

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing"
)

// ID is a SHA-1 object id.
type ID = plumbing.Hash

// Type is an object's type, by its number in packs.
type Type uint8

const (
	Commit Type = 1
	Tree   Type = 2
	Blob   Type = 3
	Tag    Type = 4

	ofsDelta Type = 6
	refDelta Type = 7
)

var typeNames = map[Type]string{Commit: "commit", Tree: "tree", Blob: "blob", Tag: "tag"}

func (t Type) String() string {
	if s, ok := typeNames[t]; ok {
		return s
	}
	return fmt.Sprintf("object type %d", uint8(t))
}

// maxInMemory (2 GiB) bounds what Read holds in memory; larger blobs must be stored whole and are streamed.
const maxInMemory = 2 << 30

// ErrNotFound is returned for an object that none of the directories has.
var ErrNotFound = errors.New("object not found")

// CorruptError says that a database's bytes are not what they must be.
type CorruptError struct {
	Object ID     // zero where the fault is not one object's
	File   string // pack, index or loose object
	Why    string
}

func (e *CorruptError) Error() string {
	if e.Object.IsZero() {
		return fmt.Sprintf("corrupt git object database: %s: %s", e.File, e.Why)
	}
	return fmt.Sprintf("corrupt git object %s in %s: %s", e.Object, e.File, e.Why)
}

// Counts are the object contents that a DB has inflated since it was opened, by type.
type Counts struct{ Commits, Trees, Blobs, Tags int64 }

// DB is a set of object directories: a repository's own and its alternates.
type DB struct {
	dirs  []string
	cache *deltaCache
	reads [8]atomic.Int64

	mu     sync.Mutex
	listed bool
	packs  []*pack // most recently useful first
	known  map[string]*pack
}

// Open returns a DB over object directories, searched in the given order. Nothing is read yet.
func Open(dirs ...string) *DB {
	return &DB{dirs: dirs, cache: newDeltaCache(deltaCacheBytes), known: map[string]*pack{}}
}

// Close releases files and mappings. Calls still under way must have ended.
func (db *DB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, p := range db.known {
		p.close()
	}
	db.known, db.packs, db.listed = map[string]*pack{}, nil, false
	return nil
}

// Counts tells how many objects' contents have been read.
func (db *DB) Counts() Counts {
	return Counts{db.reads[Commit].Load(), db.reads[Tree].Load(), db.reads[Blob].Load(), db.reads[Tag].Load()}
}

// Read returns an object, checked against its id.
func (db *DB) Read(id ID) (Type, []byte, error) {
	var t Type
	var data []byte
	err := db.find(id, func(p *pack, off int64) (err error) {
		t, data, err = p.read(db, off, new(chain))
		return err
	}, func(path string) (err error) {
		t, data, err = readLoose(path)
		return err
	})
	if err != nil {
		return 0, nil, describe(id, err)
	}
	db.reads[t&7].Add(1)
	if got := HashObject(t, data); got != id {
		return 0, nil, &CorruptError{Object: id, File: "object database", Why: "its bytes have the id " + got.String()}
	}
	return t, data, nil
}

// Size returns an object's size in bytes from its header; no content is inflated beyond a few bytes.
func (db *DB) Size(id ID) (int64, error) {
	var size int64
	err := db.find(id, func(p *pack, off int64) (err error) {
		size, err = p.size(off)
		return err
	}, func(path string) (err error) {
		_, size, err = looseHeader(path)
		return err
	})
	return size, describe(id, err)
}

// Has reports whether an object is there.
func (db *DB) Has(id ID) (bool, error) {
	err := db.find(id, func(*pack, int64) error { return nil }, func(path string) error {
		_, err := os.Lstat(path)
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Stream writes an object's content to w, in constant memory where it is not stored as a delta. The id is checked
// at the end: w must not be used as the object's content unless Stream returns nil.
func (db *DB) Stream(id ID, w io.Writer) (Type, int64, error) {
	var t Type
	var n int64
	h := sha1.New()
	head := func(typ Type, size int64) {
		t = typ
		fmt.Fprintf(h, "%s %d\x00", typ, size)
	}
	out := io.MultiWriter(h, w)
	err := db.find(id, func(p *pack, off int64) (err error) {
		n, err = p.stream(db, off, head, out)
		return err
	}, func(path string) (err error) {
		n, err = streamLoose(path, head, out)
		return err
	})
	if err != nil {
		return 0, 0, describe(id, err)
	}
	db.reads[t&7].Add(1)
	if !bytes.Equal(h.Sum(nil), id[:]) {
		return 0, 0, &CorruptError{Object: id, File: "object database", Why: fmt.Sprintf("its bytes have the id %x", h.Sum(nil))}
	}
	return t, n, nil
}

// WithPrefix returns the ids that begin with 4 to 40 lower-case hex digits, sorted.
func (db *DB) WithPrefix(prefix string) ([]ID, error) {
	if len(prefix) < 4 || len(prefix) > 40 || strings.Trim(prefix, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("not the beginning of an object id: %q", prefix)
	}
	found := map[ID]bool{}
	packs, err := db.list(false)
	if err != nil {
		return nil, err
	}
	for _, p := range packs {
		if err := p.withPrefix(prefix, func(id ID) { found[id] = true }); err != nil {
			return nil, err
		}
	}
	for _, dir := range db.dirs {
		names, err := os.ReadDir(filepath.Join(dir, prefix[:2]))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range names {
			hx := prefix[:2] + e.Name()
			if b, err := hex.DecodeString(hx); err == nil && len(b) == 20 && strings.HasPrefix(hx, prefix) {
				found[ID(b)] = true
			}
		}
	}
	ids := make([]ID, 0, len(found))
	for id := range found {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return bytes.Compare(ids[i][:], ids[j][:]) < 0 })
	return ids, nil
}

// HashObject computes the id of an object.
func HashObject(t Type, data []byte) ID {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", t, len(data))
	h.Write(data)
	var id ID
	h.Sum(id[:0])
	return id
}

func describe(id ID, err error) error {
	var c *CorruptError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &c):
		if c.Object.IsZero() {
			d := *c
			d.Object = id
			return &d
		}
		return err
	case errors.Is(err, ErrNotFound):
		return err
	}
	return fmt.Errorf("git object %s: %w", id, err)
}

// find calls inPack or inFile for the first place that has id.
func (db *DB) find(id ID, inPack func(*pack, int64) error, inFile func(path string) error) error {
	for _, again := range []bool{false, true} {
		packs, err := db.list(again)
		if err != nil {
			return err
		}
		for _, p := range packs {
			off, ok, err := p.find(id)
			if errors.Is(err, fs.ErrNotExist) {
				continue // deleted by a repack since the directory was listed
			}
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			if err = inPack(p, off); errors.Is(err, fs.ErrNotExist) {
				continue
			}
			db.prefer(p)
			return err
		}
		hx := id.String()
		for _, dir := range db.dirs {
			err := inFile(filepath.Join(dir, hx[:2], hx[2:]))
			if err == nil || !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return ErrNotFound
}

// prefer moves p to the front: neighbours in time are mostly neighbours in a pack.
func (db *DB) prefer(p *pack) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if len(db.packs) == 0 || db.packs[0] == p {
		return
	}
	packs := make([]*pack, 0, len(db.packs)) // list's callers hold the old slice
	packs = append(packs, p)
	for _, q := range db.packs {
		if q != p {
			packs = append(packs, q)
		}
	}
	db.packs = packs
}

// list returns the packs; again looks for new ones and drops those whose index is gone.
func (db *DB) list(again bool) ([]*pack, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.listed && !again {
		return db.packs, nil
	}
	var packs []*pack
	for _, dir := range db.dirs {
		names, err := os.ReadDir(filepath.Join(dir, "pack"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range names {
			base, ok := strings.CutSuffix(e.Name(), ".idx")
			if !ok || !strings.HasPrefix(base, "pack-") {
				continue
			}
			path := filepath.Join(dir, "pack", base)
			p := db.known[path]
			if p == nil {
				p = &pack{path: path}
				db.known[path] = p
			}
			packs = append(packs, p)
		}
	}
	db.packs, db.listed = packs, true
	return packs, nil
}
