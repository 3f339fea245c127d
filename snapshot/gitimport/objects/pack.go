package objects

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// maxChain bounds delta chains; git makes none over 4095. maxChainBytes (256 MiB) bounds the instructions that are held
// while a chain's base is looked for: a few bytes of a pack can stand for gigabytes of them.
const (
	maxChain      = 10000
	maxChainBytes = 256 << 20
)

// chain is what following one object's deltas has cost, through all packs.
type chain struct {
	links int
	bytes int64
	seen  map[cacheKey]bool // delta entries; a pack that was made for it can go in a circle
}

// step takes a delta up, and says why the chain can't go on.
func (c *chain) step(p *pack, off, n int64) string {
	key := cacheKey{p, off}
	if c.seen == nil {
		c.seen = map[cacheKey]bool{}
	}
	if c.links++; c.seen[key] || c.links > maxChain {
		return "its delta chain doesn't end"
	}
	c.seen[key] = true
	if c.bytes += n; c.bytes > maxChainBytes {
		return "its deltas are larger than any that git makes"
	}
	return ""
}

// pack is one pack file with its index. Both are opened at first use and stay open.
type pack struct {
	path string // without .idx or .pack

	mu   sync.Mutex
	idx  *index
	file *os.File
	end  int64 // where the trailer begins
}

func (p *pack) index() (*index, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idx == nil {
		x, err := openIndex(p.path + ".idx")
		if err != nil {
			return nil, err
		}
		p.idx = x
	}
	return p.idx, nil
}

func (p *pack) open() (*os.File, int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		return p.file, p.end, nil
	}
	f, st, err := OpenRegular(p.path + ".pack")
	if err != nil {
		return nil, 0, err
	}
	var head [12]byte
	_, err = io.ReadFull(io.NewSectionReader(f, 0, 12), head[:])
	if err == nil {
		version := binary.BigEndian.Uint32(head[4:])
		if string(head[:4]) != "PACK" || version != 2 && version != 3 || st.Size() < 32 {
			err = &CorruptError{File: p.path + ".pack", Why: "not a pack of version 2 or 3"}
		}
	} else if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = &CorruptError{File: p.path + ".pack", Why: "truncated"}
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	p.file, p.end = f, st.Size()-20
	return p.file, p.end, nil
}

func (p *pack) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idx != nil {
		p.idx.close()
	}
	if p.file != nil {
		p.file.Close()
	}
	p.idx, p.file = nil, nil
}

func (p *pack) find(id ID) (int64, bool, error) {
	x, err := p.index()
	if err != nil {
		return 0, false, err
	}
	return x.find(id)
}

func (p *pack) withPrefix(prefix string, yield func(ID)) error {
	x, err := p.index()
	if err != nil {
		return err
	}
	return x.withPrefix(prefix, yield)
}

func (p *pack) corrupt(off int64, why string) error {
	return &CorruptError{File: fmt.Sprintf("%s.pack at offset %d", p.path, off), Why: why}
}

// entry is the header of one packed object.
type entry struct {
	typ     Type
	size    int64 // of the object, or of the delta's instructions
	base    int64 // offset of an ofs-delta's base
	baseID  ID    // id of a ref-delta's base
	dataOff int64 // where the zlib stream begins
}

// header reads the entry at off: one pread, since no header is longer than 64 bytes.
func (p *pack) header(off int64) (entry, error) {
	f, end, err := p.open()
	if err != nil {
		return entry{}, err
	}
	if off < 12 || off >= end {
		return entry{}, p.corrupt(off, "the index points outside the pack")
	}
	var buf [64]byte
	b := buf[:min(int64(len(buf)), end-off)]
	if _, err := f.ReadAt(b, off); err != nil {
		return entry{}, p.ioError(off, err)
	}
	e, n, why := parseEntry(b, off)
	if why != "" {
		return entry{}, p.corrupt(off, why)
	}
	e.dataOff = off + int64(n)
	return e, nil
}

func (p *pack) ioError(off int64, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return p.corrupt(off, "truncated")
	}
	return err
}

// parseEntry decodes an entry's header; it returns its length, or why it is none.
func parseEntry(b []byte, off int64) (e entry, n int, why string) {
	const short = "its header is cut off"
	if len(b) == 0 {
		return e, 0, short
	}
	c := b[0]
	n = 1
	e.typ = Type(c >> 4 & 7)
	e.size = int64(c & 15)
	for shift := 4; c&0x80 != 0; shift += 7 {
		if n == len(b) {
			return e, 0, short
		}
		if shift > 53 {
			return e, 0, "its size is impossible"
		}
		c = b[n]
		n++
		e.size |= int64(c&0x7f) << shift
	}
	switch e.typ {
	case Commit, Tree, Blob, Tag:
	case ofsDelta:
		var d int64
		for i := 0; ; i++ {
			if n == len(b) {
				return e, 0, short
			}
			if i > 8 {
				return e, 0, "its base's distance is impossible"
			}
			c = b[n]
			n++
			if i > 0 {
				d++
			}
			d = d<<7 | int64(c&0x7f)
			if c&0x80 == 0 {
				break
			}
		}
		if d <= 0 || d > off-12 {
			return e, 0, "its base lies outside the pack"
		}
		e.base = off - d
	case refDelta:
		if len(b) < n+20 {
			return e, 0, short
		}
		copy(e.baseID[:], b[n:])
		n += 20
	default:
		return e, 0, fmt.Sprintf("unknown type %d", e.typ)
	}
	return e, n, ""
}

// size returns the size of the object at off.
func (p *pack) size(off int64) (int64, error) {
	e, err := p.header(off)
	if err != nil {
		return 0, err
	}
	if e.typ != ofsDelta && e.typ != refDelta {
		return e.size, nil
	}
	var buf [20]byte // two numbers of at most 10 bytes
	z, err := p.inflater(e)
	if err != nil {
		return 0, p.zlibError(off, err)
	}
	defer z.release()
	n, err := io.ReadFull(z, buf[:min(int64(len(buf)), e.size)])
	if err != nil {
		return 0, p.zlibError(off, err)
	}
	_, size, _, err := deltaSizes(buf[:n])
	if err != nil {
		return 0, p.corrupt(off, err.Error())
	}
	return size, nil
}

func (p *pack) zlibError(off int64, err error) error {
	if errors.Is(err, os.ErrClosed) {
		return err
	}
	return p.corrupt(off, err.Error())
}

func (p *pack) inflater(e entry) (*inflater, error) {
	f, end, err := p.open()
	if err != nil {
		return nil, err
	}
	return newInflater(io.NewSectionReader(f, e.dataOff, end-e.dataOff), e.size)
}

// inflate returns an entry's data: an object's bytes or a delta's instructions.
func (p *pack) inflate(off int64, e entry) ([]byte, error) {
	// zlib makes at most 1032 bytes of one: a larger claim is refused before it costs memory.
	if e.size > maxInMemory {
		return nil, fmt.Errorf("an object of %d bytes stored as a delta", e.size)
	}
	if e.size > (p.end-e.dataOff)*1032+64 {
		return nil, p.corrupt(off, "its size is impossible")
	}
	z, err := p.inflater(e)
	if err != nil {
		return nil, p.zlibError(off, err)
	}
	defer z.release()
	data := make([]byte, e.size)
	if _, err := io.ReadFull(z, data); err != nil {
		return nil, p.zlibError(off, err)
	}
	if err := z.atEnd(); err != nil {
		return nil, p.zlibError(off, err)
	}
	return data, nil
}

// read returns the object at off. Nothing is checked against an id here.
func (p *pack) read(db *DB, off int64, cost *chain) (Type, []byte, error) {
	type link struct {
		off   int64
		delta []byte
	}
	var links []link
	var typ Type
	var data []byte
	for at := off; data == nil; {
		if t, d, ok := db.cache.get(p, at); ok {
			typ, data = t, d
			break
		}
		e, err := p.header(at)
		if err != nil {
			return 0, nil, err
		}
		if e.typ == ofsDelta || e.typ == refDelta {
			if why := cost.step(p, at, e.size); why != "" {
				return 0, nil, p.corrupt(off, why)
			}
		}
		buf, err := p.inflate(at, e)
		if err != nil {
			return 0, nil, err
		}
		switch e.typ {
		case ofsDelta:
			links = append(links, link{at, buf})
			at = e.base
		case refDelta:
			links = append(links, link{at, buf})
			if base, ok, err := p.find(e.baseID); err != nil {
				return 0, nil, err
			} else if ok {
				at = base
				break
			}
			// Only a thin pack has its base elsewhere; git completes those, but reading them is harmless.
			err := db.find(e.baseID, func(q *pack, o int64) (err error) {
				typ, data, err = q.read(db, o, cost)
				return err
			}, func(path string) (err error) {
				typ, data, err = readLoose(path)
				return err
			})
			if err != nil {
				return 0, nil, p.corrupt(at, "its base "+e.baseID.String()+": "+err.Error())
			}
		default:
			typ, data = e.typ, buf
			if len(links) > 0 {
				db.cache.put(p, at, typ, data)
			}
		}
		if data != nil {
			break
		}
	}
	for i := len(links) - 1; i >= 0; i-- {
		out, err := applyDelta(data, links[i].delta)
		if err != nil {
			return 0, nil, p.corrupt(links[i].off, err.Error())
		}
		links[i].delta = nil
		data = out
		if i > 0 || typ == Tree {
			db.cache.put(p, links[i].off, typ, data)
		}
	}
	return typ, data, nil
}

// stream writes the object at off to w after telling head its type and size.
func (p *pack) stream(db *DB, off int64, head func(Type, int64), w io.Writer) (int64, error) {
	e, err := p.header(off)
	if err != nil {
		return 0, err
	}
	if e.typ == ofsDelta || e.typ == refDelta {
		t, data, err := p.read(db, off, new(chain))
		if err != nil {
			return 0, err
		}
		head(t, int64(len(data)))
		return io.Copy(w, bytes.NewReader(data))
	}
	z, err := p.inflater(e)
	if err != nil {
		return 0, p.zlibError(off, err)
	}
	defer z.release()
	head(e.typ, e.size)
	return z.copyExactly(w, e.size, func(err error) error { return p.zlibError(off, err) })
}
