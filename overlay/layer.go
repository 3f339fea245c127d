package overlay

import (
	"container/list"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"tine/overlay/journal"
	"tine/snapshot/durable"
)

// LayerID names a layer: one journal and one data file.
type LayerID = journal.LayerID

// NewLayerID makes an unused id.
func NewLayerID() LayerID { return journal.NewLayerID() }

const (
	fileJournal = 0
	fileData    = 1
)

var fileNames = [2]string{"journal", "data"}

// layer is one layer's files, shared by all forks and views of the process that need it. Its files are opened when
// they are read; those of closed layers are closed again when many are open.
type layer struct {
	id  LayerID
	fs  durable.FS
	dir string // LAYERS/<id>

	// guarded by layers.mu
	refs  int // forks and views
	files [2]openFile
}

// openFile is a file of a layer while it is open. Guarded by layers.mu.
type openFile struct {
	f    durable.File
	refs int // reads in progress, and 1 while the layer is some fork's live layer
	elem *list.Element
}

// layers is the process's table of layers in use.
var layers = struct {
	mu    sync.Mutex
	byDir map[string]*layer
	idle  list.List // of idleFile, least recently used first: open and with no refs
}{byDir: make(map[string]*layer)}

type idleFile struct {
	l    *layer
	kind int
}

// maxIdleFiles bounds the descriptors kept for closed layers; a chain of a thousand layers must not need a thousand.
const maxIdleFiles = 64

// openLayer takes a reference to a layer. Nothing is opened or made.
func openLayer(fsys durable.FS, layersDir string, id LayerID) *layer {
	dir := filepath.Join(layersDir, id.String())
	layers.mu.Lock()
	defer layers.mu.Unlock()
	l := layers.byDir[dir]
	if l == nil {
		l = &layer{id: id, fs: fsys, dir: dir}
		layers.byDir[dir] = l
	}
	l.refs++
	return l
}

func (l *layer) retain() *layer {
	layers.mu.Lock()
	l.refs++
	layers.mu.Unlock()
	return l
}

// release gives a reference back; the last one closes the files.
func (l *layer) release() {
	layers.mu.Lock()
	defer layers.mu.Unlock()
	if l.refs--; l.refs > 0 {
		return
	}
	delete(layers.byDir, l.dir)
	for i := range l.files {
		if o := &l.files[i]; o.f != nil && o.refs == 0 {
			l.closeLocked(i)
		}
	}
}

// closeLocked closes an idle file. layers.mu is held.
func (l *layer) closeLocked(kind int) {
	o := &l.files[kind]
	if o.elem != nil {
		layers.idle.Remove(o.elem)
	}
	o.f.Close() // only read, or synced by its fork
	*o = openFile{}
}

// LayersInUse lists the layers below layersDir that forks and views of this process need. They must not be removed.
func LayersInUse(layersDir string) []LayerID {
	layers.mu.Lock()
	defer layers.mu.Unlock()
	var ids []LayerID
	for dir, l := range layers.byDir {
		if filepath.Dir(dir) == filepath.Clean(layersDir) {
			ids = append(ids, l.id)
		}
	}
	return ids
}

func (l *layer) path(kind int) string { return filepath.Join(l.dir, fileNames[kind]) }

// acquire opens a file, or takes the open one. Every acquire is followed by a done.
func (l *layer) acquire(kind int) (durable.File, error) {
	layers.mu.Lock()
	defer layers.mu.Unlock()
	o := &l.files[kind]
	if o.f == nil {
		f, err := l.fs.OpenFile(l.path(kind), os.O_RDONLY, 0)
		if err != nil {
			return nil, err
		}
		o.f = f
	}
	if o.elem != nil {
		layers.idle.Remove(o.elem)
		o.elem = nil
	}
	o.refs++
	return o.f, nil
}

func (l *layer) done(kind int) {
	layers.mu.Lock()
	defer layers.mu.Unlock()
	o := &l.files[kind]
	if o.refs--; o.refs > 0 {
		return
	}
	if l.refs == 0 {
		l.closeLocked(kind)
		return
	}
	o.elem = layers.idle.PushBack(idleFile{l, kind})
	for layers.idle.Len() > maxIdleFiles {
		v := layers.idle.Front().Value.(idleFile)
		v.l.closeLocked(v.kind)
	}
}

// adopt makes f, open for writing, the layer's open file and keeps it open until done. It declines, and f stays its
// owner's to close, when a view of this process is reading through a descriptor of its own.
func (l *layer) adopt(kind int, f durable.File) bool {
	layers.mu.Lock()
	defer layers.mu.Unlock()
	o := &l.files[kind]
	if o.f != nil {
		if o.refs > 0 {
			return false
		}
		l.closeLocked(kind)
	}
	*o = openFile{f: f, refs: 1}
	return true
}

// readAt reads exactly len(p) bytes of one of the layer's files.
func (l *layer) readAt(kind int, p []byte, off int64) error {
	f, err := l.acquire(kind)
	if err != nil {
		return err
	}
	n, err := f.ReadAt(p, off)
	l.done(kind)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// size is a file's size in bytes; 0 if it doesn't exist.
func (l *layer) size(kind int) (int64, error) {
	st, err := l.fs.Stat(l.path(kind))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}
