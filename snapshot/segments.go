package snapshot

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"sort"
	"strings"
	"sync"

	"tine/snapshot/content"
	"tine/snapshot/durable"
)

// segments is the readers' view of STORE/segments: the index of everything that was published, and what this process
// has appended since.
type segments struct {
	store *Store

	mu      sync.RWMutex
	loaded  bool
	runs    []*run                // newest last
	pending map[recordKey][]keyed // appended by this process, in no run yet
	tails   map[recordKey][]keyed // found by scanTails
	scanned map[segName]int64     // up to where
	broken  map[string]error      // index files that can't be read, by name
	files   map[segName]durable.File
}

func (g *segments) init(s *Store) {
	g.store = s
	g.pending = map[recordKey][]keyed{}
	g.tails = map[recordKey][]keyed{}
	g.scanned = map[segName]int64{}
	g.broken = map[string]error{}
	g.files = map[segName]durable.File{}
}

func (g *segments) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, f := range g.files {
		errs = append(errs, f.Close())
	}
	clear(g.files)
	return errors.Join(errs...)
}

// find calls yield for each record of key, pending ones first, until it returns false.
func (g *segments) find(key recordKey, yield func(location) bool) error {
	g.mu.RLock()
	loaded := g.loaded
	g.mu.RUnlock()
	if !loaded {
		if _, err := g.reload(); err != nil {
			return err
		}
	}
	g.mu.RLock()
	pending, runs := g.pending[key], g.runs
	g.mu.RUnlock()
	for _, k := range pending {
		if !yield(k.loc) {
			return nil
		}
	}
	for i := len(runs) - 1; i >= 0; i-- {
		if runs[i].find(key, yield) {
			return nil
		}
	}
	return nil
}

// reload reads index files that other processes have published since, and reports whether there were any.
func (g *segments) reload() (changed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// An index that is merged away between listing and reading is listed again, with its successor.
	for try := 0; ; try++ {
		again, n, err := g.reloadLocked()
		changed = changed || n > 0
		if err != nil || !again || try == 10 {
			g.loaded = g.loaded || err == nil
			return changed, err
		}
	}
}

func (g *segments) reloadLocked() (again bool, added int, err error) {
	ents, err := g.store.readDir("segments")
	if err != nil {
		return false, 0, err
	}
	listed := map[string]bool{}
	have := map[string]*run{}
	for _, r := range g.runs {
		have[r.fileName()] = r
	}
	var runs []*run
	for _, e := range ents {
		name := e.Name()
		want, ok := parseRunName(name)
		if !ok {
			continue
		}
		listed[name] = true
		if r := have[name]; r != nil {
			runs = append(runs, r)
			continue
		}
		r, err := g.readRun(want)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			again = true
			continue
		case err != nil:
			g.broken[name] = err
			continue
		}
		delete(g.broken, name)
		runs = append(runs, r)
		added++
	}
	for name := range g.broken {
		if !listed[name] {
			delete(g.broken, name)
		}
	}
	g.runs = dropCovered(runs)
	return again, added, nil
}

func (g *segments) readRun(want *run) (*run, error) {
	name := want.fileName()
	b, err := durable.ReadFile(g.store.fs, g.store.path("segments", name))
	if err != nil {
		return nil, err
	}
	r, err := decodeRun(b)
	if err != nil {
		return nil, fmt.Errorf("segment index %s: %w", name, err)
	}
	if r.seg != want.seg || r.from != want.from || r.to != want.to {
		return nil, fmt.Errorf("segment index %s is another one under this name", name)
	}
	return r, nil
}

// dropCovered leaves out runs whose range a longer run of the same segment has too.
func dropCovered(runs []*run) []*run {
	sort.Slice(runs, func(i, j int) bool {
		a, b := runs[i], runs[j]
		if a.seg != b.seg {
			return a.seg < b.seg
		}
		if a.from != b.from {
			return a.from < b.from
		}
		return a.to > b.to
	})
	out := runs[:0:0]
	for _, r := range runs {
		if n := len(out); n > 0 && out[n-1].seg == r.seg && r.to <= out[n-1].to {
			continue
		}
		out = append(out, r)
	}
	return out
}

// scanTails looks for whole records behind the indexes of other processes' segments: what they have hydrated and not
// published, or were about to publish when they died. They can be read, but nothing may rely on them; so only a reader that
// would fail otherwise asks. It reports whether there are new ones.
func (g *segments) scanTails() (changed bool) {
	ents, err := g.store.readDir("segments")
	if err != nil {
		return false
	}
	out := &g.store.out
	out.mu.Lock()
	mine := out.name
	out.mu.Unlock()
	for _, e := range ents {
		name, ok := parseSegFile(e.Name())
		if !ok || name == mine {
			continue
		}
		st, err := e.Info()
		if err != nil {
			continue
		}
		from, gap := g.covered(name)
		g.mu.RLock()
		from = max(from, g.scanned[name])
		g.mu.RUnlock()
		if gap || st.Size() <= from {
			continue
		}
		f, err := g.file(name)
		if err != nil {
			continue
		}
		list, end := scanRecords(f, name, from, st.Size())
		g.mu.Lock()
		g.scanned[name] = end
		for _, k := range list {
			g.tails[k.key] = append(g.tails[k.key], k)
		}
		g.mu.Unlock()
		changed = changed || len(list) > 0
	}
	return changed
}

// findTail is find among what scanTails found.
func (g *segments) findTail(key recordKey, yield func(location) bool) {
	g.mu.RLock()
	list := g.tails[key]
	g.mu.RUnlock()
	for _, k := range list {
		if !yield(k.loc) {
			return
		}
	}
}

// problem is why the index may be incomplete, nil if it isn't.
func (g *segments) problem() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, err := range g.broken {
		return err
	}
	return nil
}

func segFile(n segName) string { return n.String() + ".seg" }

func parseSegFile(name string) (segName, bool) {
	var n segName
	hex, ok := strings.CutSuffix(name, ".seg")
	if _, err := fmt.Sscanf(hex, "%x", (*uint64)(&n)); !ok || err != nil || segFile(n) != name {
		return 0, false
	}
	return n, true
}

// file is a segment opened for reading, kept open.
func (g *segments) file(n segName) (durable.File, error) {
	g.mu.RLock()
	f := g.files[n]
	g.mu.RUnlock()
	if f != nil {
		return f, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.files[n]; f != nil {
		return f, nil
	}
	f, err := g.store.fs.OpenFile(g.store.path("segments", segFile(n)), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	head := make([]byte, segHeaderLen)
	if err = content.ReadFull(f, head, 0); err == nil {
		err = checkSegHeader(head, n)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	g.files[n] = f
	return f, nil
}

// read returns the data of the record of key at l, with the header and the data's checksum verified.
func (g *segments) read(key recordKey, l location) ([]byte, error) {
	f, err := g.file(l.seg)
	if err != nil {
		return nil, err
	}
	b := make([]byte, recHeaderLen+l.length)
	if err := content.ReadFull(f, b, l.off); err != nil {
		return nil, fmt.Errorf("segment %s at %d: %w", l.seg, l.off, err)
	}
	rec, err := decodeRecord(b)
	if err != nil {
		return nil, fmt.Errorf("segment %s at %d: %w", l.seg, l.off, err)
	}
	data := b[recHeaderLen:]
	if rec.key != key || rec.length != l.length || rec.kind != l.kind || rec.size != l.size || crc32.Checksum(data, crcTable) != rec.crc {
		return nil, fmt.Errorf("segment %s at %d: the record is not the indexed one", l.seg, l.off)
	}
	return data, nil
}
