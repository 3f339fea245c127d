package gitimport

import (
	"os"
	"path"

	"github.com/go-git/go-billy/v5"

	"tine/snapshot/gitimport/objects"
)

// Bounds on a repository's files that are read as a whole, far above what git writes: a hostile one must not cost more
// memory than it costs disk.
const (
	maxPathFile  = 64 << 10 // one path
	maxSettings  = 16 << 20 // a configuration
	maxRef       = 64 << 10 // one loose reference
	maxListFile  = 256 << 20
	maxIndexFile = 2 << 30
)

// regularOnly is a directory of which go-git opens regular files only, and none that is larger than git makes it: it
// would wait for a FIFO for ever and read a device without an end.
type regularOnly struct{ billy.Filesystem }

func (r regularOnly) Open(name string) (billy.File, error) {
	return r.OpenFile(name, os.O_RDONLY, 0)
}

func (r regularOnly) OpenFile(name string, flag int, perm os.FileMode) (billy.File, error) {
	st, err := r.Stat(name)
	if err != nil {
		return nil, err
	}
	limit := int64(maxRef)
	if path.Base(name) == "packed-refs" {
		limit = maxListFile
	}
	switch {
	case st.IsDir():
	case !st.Mode().IsRegular():
		return nil, &objects.NotRegularError{Path: name}
	case st.Size() > limit:
		return nil, &objects.TooLargeError{Path: name, Size: st.Size(), Max: limit}
	}
	return r.Filesystem.OpenFile(name, flag, perm)
}
