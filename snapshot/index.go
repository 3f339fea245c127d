package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sort"
	"strconv"
	"strings"

	"tine/snapshot/content"
)

// Sizes in bytes of the index format; FORMAT.md "Segments".
const (
	idxHeaderLen = 48
	idxEntryLen  = 96
	idxVersion   = 1
)

var idxMagic = [8]byte{'T', 'I', 'N', 'E', 'I', 'D', 'X', '1'}

// segName names a segment: 64 random bits, 16 hex digits in file names.
type segName uint64

func (n segName) String() string { return fmt.Sprintf("%016x", uint64(n)) }

// location is where a record is, as an index knows it.
type location struct {
	seg    segName
	off    int64 // of the record's header
	length int64 // of its data
	size   int64 // of the content
	kind   recordKind
	sha256 [32]byte
}

// run is one index file: the records of a range of one segment, sorted by key. It is immutable.
type run struct {
	seg      segName
	from, to int64  // the range of the segment that it covers
	entries  []byte // idxEntryLen each, as on disk
}

func (r *run) len() int { return len(r.entries) / idxEntryLen }

// An entry is: key 34, kind 1, zero 5, sha256 32, offset u64, length u64, size u64.
func (r *run) entry(i int) []byte { return r.entries[i*idxEntryLen:][:idxEntryLen] }

func (r *run) location(i int) location {
	e := r.entry(i)
	return location{
		seg:    r.seg,
		kind:   recordKind(e[34]),
		sha256: [32]byte(e[40:72]),
		off:    int64(binary.LittleEndian.Uint64(e[72:])),
		length: int64(binary.LittleEndian.Uint64(e[80:])),
		size:   int64(binary.LittleEndian.Uint64(e[88:])),
	}
}

// find calls yield for each record of key until it returns false, and reports whether it did.
func (r *run) find(key recordKey, yield func(location) bool) bool {
	i := sort.Search(r.len(), func(i int) bool { return bytes.Compare(r.entry(i)[:34], key[:]) >= 0 })
	for ; i < r.len() && recordKey(r.entry(i)[:34]) == key; i++ {
		if !yield(r.location(i)) {
			return true
		}
	}
	return false
}

type keyed struct {
	key recordKey
	loc location
}

// newRun makes a run of entries, which it sorts.
func newRun(seg segName, from, to int64, list []keyed) *run {
	sort.Slice(list, func(i, j int) bool {
		if c := bytes.Compare(list[i].key[:], list[j].key[:]); c != 0 {
			return c < 0
		}
		return list[i].loc.off < list[j].loc.off
	})
	r := &run{seg: seg, from: from, to: to, entries: make([]byte, len(list)*idxEntryLen)}
	for i := range list {
		e, l := r.entry(i), &list[i].loc
		copy(e, list[i].key[:])
		e[34] = byte(l.kind)
		copy(e[40:], l.sha256[:])
		binary.LittleEndian.PutUint64(e[72:], uint64(l.off))
		binary.LittleEndian.PutUint64(e[80:], uint64(l.length))
		binary.LittleEndian.PutUint64(e[88:], uint64(l.size))
	}
	return r
}

// mergeRuns makes one run of runs of one segment.
func mergeRuns(runs []*run) *run {
	var list []keyed
	seen := map[int64]bool{}
	from, to := runs[0].from, runs[0].to
	for _, r := range runs {
		from, to = min(from, r.from), max(to, r.to)
		for i := range r.len() {
			if l := r.location(i); !seen[l.off] {
				seen[l.off] = true
				list = append(list, keyed{recordKey(r.entry(i)[:34]), l})
			}
		}
	}
	return newRun(runs[0].seg, from, to, list)
}

// fileName is the name of the run's file in segments/.
func (r *run) fileName() string { return fmt.Sprintf("%s.%x-%x.idx", r.seg, r.from, r.to) }

// parseRunName is the inverse of fileName; entries is nil.
func parseRunName(name string) (*run, bool) {
	base, ok := strings.CutSuffix(name, ".idx")
	seg, span, ok1 := strings.Cut(base, ".")
	a, b, ok2 := strings.Cut(span, "-")
	n, err0 := strconv.ParseUint(seg, 16, 64)
	from, err1 := strconv.ParseInt(a, 16, 64)
	to, err2 := strconv.ParseInt(b, 16, 64)
	r := &run{seg: segName(n), from: from, to: to}
	if !ok || !ok1 || !ok2 || err0 != nil || err1 != nil || err2 != nil || r.fileName() != name {
		return nil, false
	}
	return r, true
}

func (r *run) encode() []byte {
	b := make([]byte, idxHeaderLen, idxHeaderLen+len(r.entries)+4)
	copy(b, idxMagic[:])
	binary.LittleEndian.PutUint32(b[8:], idxVersion)
	binary.LittleEndian.PutUint32(b[12:], idxEntryLen)
	binary.LittleEndian.PutUint64(b[16:], uint64(r.seg))
	binary.LittleEndian.PutUint64(b[24:], uint64(r.from))
	binary.LittleEndian.PutUint64(b[32:], uint64(r.to))
	binary.LittleEndian.PutUint64(b[40:], uint64(r.len()))
	b = append(b, r.entries...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crcTable))
}

// decodeRun reads an index file. What it returns is well formed: sorted, within the covered range, of known kinds.
func decodeRun(b []byte) (*run, error) {
	if len(b) < idxHeaderLen+4 || [8]byte(b[:8]) != idxMagic {
		return nil, fmt.Errorf("not a segment index")
	}
	body := len(b) - 4
	if crc32.Checksum(b[:body], crcTable) != binary.LittleEndian.Uint32(b[body:]) {
		return nil, fmt.Errorf("checksum differs")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != idxVersion {
		return nil, &VersionError{What: "segment index", Got: int(v), Known: idxVersion}
	}
	r := &run{
		seg:     segName(binary.LittleEndian.Uint64(b[16:])),
		from:    int64(binary.LittleEndian.Uint64(b[24:])),
		to:      int64(binary.LittleEndian.Uint64(b[32:])),
		entries: b[idxHeaderLen:body],
	}
	if binary.LittleEndian.Uint32(b[12:]) != idxEntryLen || len(r.entries)%idxEntryLen != 0 ||
		uint64(r.len()) != binary.LittleEndian.Uint64(b[40:]) || r.from < segHeaderLen || r.to < r.from {
		return nil, fmt.Errorf("header and size disagree")
	}
	for i := range r.len() {
		e, l := r.entry(i), r.location(i)
		rec := record{key: recordKey(e[:34]), kind: l.kind, size: l.size, length: l.length}
		switch {
		case l.length < 0, l.length > maxRecord, l.off < r.from, l.off > r.to-rec.span():
			return nil, fmt.Errorf("entry %d lies outside of the covered range", i)
		case i > 0 && bytes.Compare(r.entry(i - 1)[:34], e[:34]) > 0:
			return nil, fmt.Errorf("entry %d is out of order", i)
		}
		if err := rec.check(); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return r, nil
}

// missingFrom is the error for a key that no index has; where an index can't be read, it is the likely reason.
func missingFrom(id content.ID, cause error) error {
	return &content.MissingError{ID: id, Cause: cause}
}
