package overlay

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"tine/overlay/journal"
	"tine/snapshot/durable"
)

const (
	// The journal is allocated ahead in steps, so that a full disk is noticed while there is still room for the
	// records that free space: reserve bytes, and enough to remove each inode that was made in the fork, are left to
	// those.
	allocStep    = 32 << 10
	allocStepMax = 4 << 20
	reserve      = 16 << 10
	reserveInode = 112 // an unlink and a drop, with a short name
)

// log is the live layer's journal and data file. Guarded by the fork's lock; the data file is written without it.
type log struct {
	l     *layer
	index uint32    // of l in the fork's table
	j, d  *openFile // nil until the first change

	tail    int64 // where the next record goes
	start   int64 // where a replay begins: behind the last trees file
	size    int64 // of the file, zeroes behind tail
	noAlloc bool  // the file system can't allocate ahead
	seq     uint64
	dirty   bool // bytes behind tail have to be cut off before the next record
	session bool // a session effect has been written since the fork was opened
	conn    [16]byte
	boot    [16]byte // of the layer's last session
	written bool     // the data file has bytes that no fdatasync has covered
	// names counts files made or opened, namesSynced those whose names are durable.
	names, namesSynced int
	durable            uint64 // journal records up to here are on disk
}

// close gives the files back.
func (g *log) close() {
	if g.j != nil {
		g.j.done()
	}
	if g.d != nil {
		g.d.done()
	}
	g.j, g.d = nil, nil
}

// open makes or opens the journal for appending. Nothing on disk changes before the first record.
func (g *log) open(f *Fork) error {
	if g.j != nil {
		return nil
	}
	if err := f.fs.Mkdir(g.l.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	j, err := withDescriptors(func() (durable.File, error) {
		return f.fs.OpenFile(g.l.path(fileJournal), os.O_RDWR|os.O_CREATE, 0o644)
	})
	if err != nil {
		return err
	}
	switch {
	case g.tail == 0:
		err = g.writeHeader(f, j)
	case g.dirty:
		if err = j.Truncate(g.tail); err == nil {
			g.dirty, g.size = false, g.tail
		}
	}
	if err != nil {
		j.Close()
		return err
	}
	g.j = g.l.adopt(fileJournal, j)
	g.names++
	return nil
}

func (g *log) writeHeader(f *Fork, j durable.File) error {
	h := journal.Header{Layer: g.l.id, FirstSeq: g.seq, Gen: f.cfg.Generation, Boot: f.boot, Fork: f.cfg.ForkID, Base: f.cfg.BaseID}
	if g.index > 0 {
		h.Parent = f.table[g.index-1].id
	}
	b, err := h.Encode()
	if err != nil {
		return err
	}
	if err = j.Truncate(0); err == nil {
		_, err = j.WriteAt(b, 0)
	}
	if err != nil {
		f.fs.Remove(g.l.path(fileJournal))
		f.fs.Remove(g.l.dir)
		return err
	}
	g.tail, g.size, g.dirty = journal.HeaderSize, journal.HeaderSize, false
	return nil
}

// openData makes or opens the data file.
func (g *log) openData(f *Fork) error {
	if g.d != nil {
		return nil
	}
	if err := g.open(f); err != nil {
		return err
	}
	d, err := withDescriptors(func() (durable.File, error) {
		return f.fs.OpenFile(g.l.path(fileData), os.O_RDWR|os.O_CREATE, 0o644)
	})
	if err != nil {
		return err
	}
	g.d = g.l.adopt(fileData, d)
	g.names++
	return nil
}

// trim gives the space that was allocated ahead back, and then the files: the layer is closed.
func (g log) trim() {
	g.j.f.Truncate(g.tail) // zeroes behind the last record count as its end too
	g.close()
}

// append writes records at the tail with one write(2) and keeps room for removing inodes. freeing records may use
// that. After an error nothing was appended, unless the error is a *BrokenError.
func (g *log) append(b []byte, inodes int64, freeing bool) error {
	end := g.tail + int64(len(b))
	keep := reserve + reserveInode*max(inodes, 0)
	if end+keep > g.size && !g.noAlloc {
		if err := g.allocate(end + keep); err != nil && !(freeing && end <= g.size && errors.Is(err, unix.ENOSPC)) {
			return err
		}
	}
	_, err := g.j.f.WriteAt(b, g.tail)
	if err == nil {
		g.tail = end
		g.size = max(g.size, end)
		return nil
	}
	if terr := g.j.f.Truncate(g.tail); terr != nil {
		return &BrokenError{Cause: errors.Join(err, terr)}
	}
	g.size = g.tail
	return err
}

func (g *log) allocate(to int64) error {
	step := min(max(g.tail/4, allocStep), allocStepMax)
	to = max(g.size+step, to)
	err := g.j.f.Allocate(g.size, to-g.size)
	switch {
	case err == nil:
		g.size = to
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		g.noAlloc = true
		err = nil
	}
	return err
}
