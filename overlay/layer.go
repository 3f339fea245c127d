package overlay

import (
	"container/list"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

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
	id   LayerID
	salt uint32 // of its records' checksums
	fs   durable.FS
	dir  string // LAYERS/<id>

	// guarded by layers.mu
	refs  int // forks and views
	files [2]*openFile
}

// openFile is an open file of a layer. Guarded by layers.mu, except f, which doesn't change.
type openFile struct {
	l    *layer
	kind int
	f    durable.File
	refs int           // uses in progress, and 1 while the layer is some fork's live layer
	elem *list.Element // in layers.idle
}

// layers is the process's table of layers in use.
var layers = struct {
	mu    sync.Mutex
	byDir map[string]*layer
	idle  list.List // of *openFile without refs, least recently used first
}{byDir: make(map[string]*layer)}

// maxIdleFiles bounds the descriptors kept for closed layers: a chain of a thousand layers must not need a thousand. It
// is 64, or an eighth of what the process may open.
var maxIdleFiles = idleFiles()

func idleFiles() int {
	const most, least = 64, 4
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil {
		return most
	}
	return int(min(max(lim.Cur/8, least), most))
}

// openLocked opens one of the layer's files; where the process has too many open, without those that only might be
// used again. layers.mu is held.
func (l *layer) openLocked(kind int) (durable.File, error) {
	for {
		f, err := l.fs.OpenFile(l.path(kind), os.O_RDONLY, 0)
		if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) || layers.idle.Len() == 0 {
			return f, err
		}
		for layers.idle.Len() > 0 {
			layers.idle.Front().Value.(*openFile).closeLocked()
		}
	}
}

// withDescriptors calls open, and once more without the files and contents that only might be used again where the
// process has too many open. No lock of the package is held.
func withDescriptors[T any](open func() (T, error)) (T, error) {
	v, err := open()
	if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) {
		return v, err
	}
	layers.mu.Lock()
	for layers.idle.Len() > 0 {
		layers.idle.Front().Value.(*openFile).closeLocked()
	}
	layers.mu.Unlock()
	closeIdleReaders(0)
	return open()
}

// openLayer takes a reference to a layer. Nothing is opened or made.
func openLayer(fsys durable.FS, layersDir string, id LayerID) *layer {
	dir := filepath.Join(layersDir, id.String())
	layers.mu.Lock()
	defer layers.mu.Unlock()
	l := layers.byDir[dir]
	if l == nil {
		l = &layer{id: id, salt: id.Salt(), fs: fsys, dir: dir}
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

// release gives a reference back; the last one closes the files that nobody is using.
func (l *layer) release() {
	layers.mu.Lock()
	defer layers.mu.Unlock()
	if l.refs--; l.refs > 0 {
		return
	}
	delete(layers.byDir, l.dir)
	for _, o := range l.files {
		if o != nil && o.refs == 0 {
			o.closeLocked()
		}
	}
}

// closeLocked closes a file that nobody uses. layers.mu is held.
func (o *openFile) closeLocked() {
	if o.elem != nil {
		layers.idle.Remove(o.elem)
		o.elem = nil
	}
	if o.l.files[o.kind] == o {
		o.l.files[o.kind] = nil
	}
	o.f.Close() // only read, or synced by its fork
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
func (l *layer) acquire(kind int) (*openFile, error) {
	layers.mu.Lock()
	defer layers.mu.Unlock()
	o := l.files[kind]
	if o == nil {
		f, err := l.openLocked(kind)
		if err != nil {
			return nil, err
		}
		o = &openFile{l: l, kind: kind, f: f}
		l.files[kind] = o
	}
	if o.elem != nil {
		layers.idle.Remove(o.elem)
		o.elem = nil
	}
	o.refs++
	return o, nil
}

func (o *openFile) done() {
	layers.mu.Lock()
	defer layers.mu.Unlock()
	if o.refs--; o.refs > 0 {
		return
	}
	if o.l.refs == 0 || o.l.files[o.kind] != o {
		o.closeLocked()
		return
	}
	o.elem = layers.idle.PushBack(o)
	for layers.idle.Len() > maxIdleFiles {
		layers.idle.Front().Value.(*openFile).closeLocked()
	}
}

// adopt makes f, open for writing, the layer's open file; done ends that.
func (l *layer) adopt(kind int, f durable.File) *openFile {
	layers.mu.Lock()
	defer layers.mu.Unlock()
	if o := l.files[kind]; o != nil && o.refs == 0 {
		o.closeLocked() // one that is in use is closed by its last done
	}
	o := &openFile{l: l, kind: kind, f: f, refs: 1}
	l.files[kind] = o
	return o
}

// readAt reads exactly len(p) bytes of one of the layer's files.
func (l *layer) readAt(kind int, p []byte, off int64) error {
	o, err := l.acquire(kind)
	if err != nil {
		return err
	}
	n, err := o.f.ReadAt(p, off)
	o.done()
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
