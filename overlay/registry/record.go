package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"

	"tine/overlay"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The operations of a line.
const (
	opHeader = "registry" // the first line: version
	opPut    = "put"      // a fork as it is from now on
	opRotate = "rotate"   // fork ID gets one more layer
	opRemove = "remove"   // fork ID is gone
)

const version = 1

// record is a line: the operation's number of lines before it, the operation, its arguments.
type record struct {
	Seq     uint64 `json:"seq"`
	Op      string `json:"op"`
	Version int    `json:"version,omitempty"` // of opHeader
	ID      string `json:"id,omitempty"`
	Fork    *Fork  `json:"fork,omitempty"`
	// LayersOf and LayersN (opPut): the fork's layers begin with the first LayersN of that fork's, and Fork.Layers has
	// the rest. Deeply nested forks would repeat a thousand ids otherwise.
	LayersOf string           `json:"layers_of,omitempty"`
	LayersN  int              `json:"layers_n,omitempty"`
	Layer    *overlay.LayerID `json:"layer,omitempty"` // of opRotate
}

// encode gives a record's line: eight hex digits of CRC32C, a space, the JSON, a newline.
func (r *record) encode() ([]byte, error) {
	j, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	line := fmt.Appendf(nil, "%08x ", crc32.Checksum(j, castagnoli))
	return append(append(line, j...), '\n'), nil
}

// decode parses a line without its newline.
func decode(line []byte) (*record, error) {
	if len(line) < 10 || line[8] != ' ' {
		return nil, errors.New("not a record")
	}
	sum, err := strconv.ParseUint(string(line[:8]), 16, 32)
	if err != nil || uint32(sum) != crc32.Checksum(line[9:], castagnoli) {
		return nil, errors.New("checksum mismatch")
	}
	r := new(record)
	d := json.NewDecoder(bytes.NewReader(line[9:]))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, err
	}
	return r, nil
}

// table is the forks after some prefix of the log.
type table struct {
	forks  map[string]*Fork
	names  map[string]string // name -> id
	order  []string          // ids in order of their creation; removed ones are skipped
	seq    uint64            // of the next record
	weight int               // records, to tell history from the present
}

func newTable() *table {
	return &table{forks: map[string]*Fork{}, names: map[string]string{}}
}

func (t *table) apply(r *record) error {
	if r.Seq != t.seq {
		return fmt.Errorf("has number %d where %d is next", r.Seq, t.seq)
	}
	if (r.Op == opHeader) != (r.Seq == 0) {
		return fmt.Errorf("operation %q in record %d", r.Op, r.Seq)
	}
	switch r.Op {
	case opHeader:
		if r.Version != version {
			return fmt.Errorf("registry of version %d; this program reads version %d", r.Version, version)
		}
	case opPut:
		if err := t.put(r); err != nil {
			return err
		}
	case opRotate:
		f := t.forks[r.ID]
		if f == nil || r.Layer == nil || r.Layer.IsZero() || slices.Contains(f.Layers, *r.Layer) {
			return fmt.Errorf("rotates fork %q to a layer that it can't have", r.ID)
		}
		// The slice may be a prefix of another fork's.
		f.Layers = append(f.Layers[:len(f.Layers):len(f.Layers)], *r.Layer)
	case opRemove:
		f := t.forks[r.ID]
		if f == nil {
			return fmt.Errorf("removes fork %q, which isn't there", r.ID)
		}
		delete(t.names, f.Name)
		delete(t.forks, r.ID)
	default:
		return fmt.Errorf("unknown operation %q", r.Op)
	}
	t.seq++
	t.weight++
	return nil
}

func (t *table) put(r *record) error {
	if r.Fork == nil {
		return errors.New("puts no fork")
	}
	f := *r.Fork
	if r.LayersOf != "" {
		of := t.forks[r.LayersOf]
		if of == nil || r.LayersN < 0 || r.LayersN > len(of.Layers) {
			return fmt.Errorf("has the layers of fork %q, which doesn't have them", r.LayersOf)
		}
		f.Layers = append(slices.Clone(of.Layers[:r.LayersN]), f.Layers...)
	}
	if err := f.check(); err != nil {
		return err
	}
	if holder := t.names[f.Name]; f.Name != "" && holder != "" && holder != f.ID {
		return &NameTakenError{Name: f.Name, Holder: holder}
	}
	if old := t.forks[f.ID]; old != nil {
		delete(t.names, old.Name)
	} else {
		t.order = append(t.order, f.ID)
	}
	if f.Name != "" {
		t.names[f.Name] = f.ID
	}
	t.forks[f.ID] = &f
	return nil
}

// putRecord is the shortest record that makes f.
func (t *table) putRecord(f *Fork) *record {
	r := &record{Seq: t.seq, Op: opPut}
	c := f.clone()
	r.Fork = &c
	for _, of := range []string{f.ID, f.Parent} {
		p := t.forks[of]
		if p == nil {
			continue
		}
		n := 0
		for n < len(p.Layers) && n < len(f.Layers) && p.Layers[n] == f.Layers[n] {
			n++
		}
		if n > 1 {
			r.LayersOf, r.LayersN = of, n
			c.Layers = c.Layers[n:]
			break
		}
	}
	return r
}
