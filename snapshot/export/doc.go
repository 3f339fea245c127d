// Package export writes a tree out: as a directory, or as a tar archive.
//
// A directory gets everything that a checkpoint has and that can be set from outside: names, bytes, types, modes, owners,
// modification times in ns, hard links, symlinks, extended attributes (ACLs and capabilities among them), holes. It appears
// by one rename when it is complete. Change and birth times can't be set, and device nodes are made only on request,
// because they would be live there.
package export

import (
	"cmp"
	"slices"

	"tine/snapshot/image"
)

// Options are how a tree is written out.
type Options struct {
	// Devices makes character and block devices in a directory too; they are skipped otherwise. An archive, where they
	// are inert, has them always.
	Devices bool
	// Skipped is told of each path that was left out and why; nil is fine.
	Skipped func(path, why string)
	// Progress is told of each finished file and its bytes; nil is fine.
	Progress func(files int, bytes int64)
}

func (o *Options) skip(path, why string) {
	if o.Skipped != nil {
		o.Skipped(path, why)
	}
}

func (o *Options) progress(bytes int64) {
	if o.Progress != nil {
		o.Progress(1, bytes)
	}
}

// Bits of a node's mode (S_IFMT and types).
const (
	modeType    = 0o170000
	modeSocket  = 0o140000
	modeSymlink = 0o120000
	modeRegular = 0o100000
	modeBlock   = 0o060000
	modeDir     = 0o040000
	modeChar    = 0o020000
	modeFIFO    = 0o010000
)

// list is a directory's entries by name, so that what is written doesn't depend on the order in which names were made.
func list(t image.Tree, dir uint64) ([]image.Dirent, error) {
	var all []image.Dirent
	if err := t.ReadDir(dir, 0, func(d image.Dirent) bool { all = append(all, d); return true }); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b image.Dirent) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}
