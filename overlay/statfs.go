package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"tine/snapshot/durable"
)

// Statfs is what df shows of a fork.
type Statfs struct {
	Bsize   uint32 // bytes; Blocks, Bfree and Bavail count these
	Blocks  uint64
	Bfree   uint64
	Bavail  uint64
	Files   uint64
	Ffree   uint64
	Namelen uint32
}

// Statfs tells the fork's limits and use where it has limits, else those of the disk that its layers are on. What is
// free is never more than the disk has.
func (f *Fork) Statfs() (Statfs, error) {
	var d unix.Statfs_t
	if err := unix.Statfs(f.cfg.LayersDir, &d); err != nil {
		return Statfs{}, &IOError{Op: "statfs of the store of", Err: err}
	}
	unit := uint64(d.Bsize)
	st := Statfs{
		Bsize: pageSize, Namelen: 255,
		Blocks: d.Blocks * unit / pageSize, Bfree: d.Bfree * unit / pageSize, Bavail: d.Bavail * unit / pageSize,
	}
	f.mu.RLock()
	s, lim := f.w.s, f.limits
	bytes, inodes, own := uint64(max(s.ownBytes, 0)), uint64(s.inodes), uint64(max(s.ownInodes, 0))
	f.mu.RUnlock()
	if lim.Bytes > 0 {
		used := (bytes + pageSize - 1) / pageSize
		st.Blocks = uint64(lim.Bytes) / pageSize
		left := st.Blocks - min(used, st.Blocks)
		st.Bfree, st.Bavail = min(st.Bfree, left), min(st.Bavail, left)
	}
	// Inodes cost no inode of the disk.
	st.Ffree = 1 << 32
	if lim.Inodes > 0 {
		st.Ffree = uint64(lim.Inodes) - min(own, uint64(lim.Inodes))
	}
	st.Files = inodes + st.Ffree
	return st, nil
}

// Stats counts what a fork holds.
type Stats struct {
	Inodes    int64 // that exist
	Bytes     int64 // sum of the sizes of its files
	OwnInodes int64 // made in the fork
	OwnBytes  int64 // contents and reservations made in the fork
	Orphans   int   // inodes without a name
	Changed   int   // inodes that differ from the base's
	Layers    int
	Journal   int64 // bytes of the live layer's journal
	Data      int64 // bytes of the live layer's data file in use or waiting for reuse
}

// Stats returns the fork's counts.
func (f *Fork) Stats() Stats {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s := f.w.s
	return Stats{
		Inodes: s.inodes, Bytes: s.sizes, OwnInodes: s.ownInodes, OwnBytes: s.ownBytes, Orphans: len(s.orphans),
		Changed: s.nodes.Len(), Layers: len(f.table), Journal: f.log.tail, Data: f.space.tail,
	}
}

// RemoveLayer deletes a layer's files. The caller knows that no fork of another process, seal or pin needs it; one
// that this process uses is refused.
func RemoveLayer(fsys durable.FS, layersDir string, id LayerID) error {
	for _, used := range LayersInUse(layersDir) {
		if used == id {
			return fmt.Errorf("layer %s is in use: %w", id, unix.EBUSY)
		}
	}
	err := fsys.RemoveAll(filepath.Join(layersDir, id.String()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
