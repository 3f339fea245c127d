package objects

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"sort"

	"golang.org/x/sys/unix"
)

// index is a mapped pack index, version 1 or 2.
//
//	v2: offset  size   field
//	    0       4      ff 74 4f 63
//	    4       4      version, 2
//	    8       1024   fan-out: number of ids whose first byte is <= i
//	    1032    20n    ids, sorted
//	            4n     CRC32 of the packed bytes
//	            4n     offset in the pack; with the top bit set, an index into the next table
//	            8k     offsets of 2 GiB and more
//	            40     pack's SHA-1, index's SHA-1
//	v1: fan-out, then n times (offset 4, id 20), then the two SHA-1s. All numbers big endian.
type index struct {
	path    string
	data    []byte
	n       int
	version int
}

const (
	fanout      = 256 * 4
	idxTrailer  = 40
	idx2Header  = 8
	idx2PerItem = 20 + 4 + 4
	idx1PerItem = 24
)

func openIndex(path string) (*index, error) {
	f, st, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st.Size() < fanout+idxTrailer || st.Size() > 1<<40 {
		return nil, &CorruptError{File: path, Why: fmt.Sprintf("an index of %d bytes", st.Size())}
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	x, err := parseIndex(path, data)
	if err != nil {
		unix.Munmap(data)
		return nil, err
	}
	return x, nil
}

// parseIndex checks the index's shape; its ids and offsets are checked where they are used.
func parseIndex(path string, data []byte) (x *index, err error) {
	defer recoverFault(path, &err)()
	corrupt := func(why string) (*index, error) { return nil, &CorruptError{File: path, Why: why} }
	if len(data) < fanout+idxTrailer {
		return corrupt("shorter than its tables")
	}
	x = &index{path: path, data: data, version: 1}
	if bytes.Equal(data[:4], []byte("\xfftOc")) {
		if x.version = int(binary.BigEndian.Uint32(data[4:])); x.version != 2 {
			return corrupt(fmt.Sprintf("unknown index version %d", x.version))
		}
		if len(data) < idx2Header+fanout+idxTrailer {
			return corrupt("shorter than its tables")
		}
	}
	prev := 0
	for i := 0; i < 256; i++ {
		n := x.fan(i)
		if n < prev {
			return corrupt("its fan-out table is not ascending")
		}
		prev = n
	}
	x.n = prev
	want := fanout + x.n*idx1PerItem + idxTrailer
	if x.version == 2 {
		want = idx2Header + fanout + x.n*idx2PerItem + idxTrailer
		if len(data) < want || (len(data)-want)%8 != 0 {
			return corrupt("its size doesn't fit its number of objects")
		}
	} else if len(data) != want {
		return corrupt("its size doesn't fit its number of objects")
	}
	return x, nil
}

// recoverFault turns a page fault in mapped memory (a file that shrank, a bad disk) into an error.
func recoverFault(path string, err *error) func() {
	old := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			if _, ok := r.(interface{ Addr() uintptr }); !ok {
				panic(r)
			}
			*err = &CorruptError{File: path, Why: fmt.Sprintf("unreadable: %v", r)}
		}
	}
}

func (x *index) base() int {
	if x.version == 2 {
		return idx2Header
	}
	return 0
}

func (x *index) fan(i int) int { return int(binary.BigEndian.Uint32(x.data[x.base()+4*i:])) }

func (x *index) name(i int) []byte {
	if x.version == 2 {
		o := idx2Header + fanout + 20*i
		return x.data[o : o+20]
	}
	o := fanout + idx1PerItem*i + 4
	return x.data[o : o+20]
}

func (x *index) offset(i int) (int64, error) {
	if x.version == 1 {
		return int64(binary.BigEndian.Uint32(x.data[fanout+idx1PerItem*i:])), nil
	}
	o := binary.BigEndian.Uint32(x.data[idx2Header+fanout+24*x.n+4*i:])
	if o>>31 == 0 {
		return int64(o), nil
	}
	at := idx2Header + fanout + idx2PerItem*x.n + 8*int(o&^(1<<31))
	if at+8 > len(x.data)-idxTrailer {
		return 0, &CorruptError{File: x.path, Why: "an offset lies outside the table of large offsets"}
	}
	v := binary.BigEndian.Uint64(x.data[at:])
	if v >= 1<<62 {
		return 0, &CorruptError{File: x.path, Why: "impossible offset"}
	}
	return int64(v), nil
}

func (x *index) bucket(first byte) (lo, hi int) {
	if first > 0 {
		lo = x.fan(int(first) - 1)
	}
	return lo, x.fan(int(first))
}

func (x *index) find(id ID) (off int64, ok bool, err error) {
	defer recoverFault(x.path, &err)()
	lo, hi := x.bucket(id[0])
	i := lo + sort.Search(hi-lo, func(k int) bool { return bytes.Compare(x.name(lo+k), id[:]) >= 0 })
	if i >= hi || !bytes.Equal(x.name(i), id[:]) {
		return 0, false, nil
	}
	off, err = x.offset(i)
	return off, err == nil, err
}

// withPrefix yields the ids that begin with the hex digits of prefix (4 to 40).
func (x *index) withPrefix(prefix string, yield func(ID)) (err error) {
	defer recoverFault(x.path, &err)()
	low, err := hex.DecodeString(prefix + "0000000000000000000000000000000000000000"[:40-len(prefix)])
	if err != nil {
		return err
	}
	lo, hi := x.bucket(low[0])
	i := lo + sort.Search(hi-lo, func(k int) bool { return bytes.Compare(x.name(lo+k), low) >= 0 })
	for ; i < hi && hex.EncodeToString(x.name(i))[:len(prefix)] == prefix; i++ {
		yield(ID(x.name(i)))
	}
	return nil
}

func (x *index) close() { unix.Munmap(x.data) }
