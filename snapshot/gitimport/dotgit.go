package gitimport

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"sort"

	"golang.org/x/sys/unix"

	"tine/snapshot/content"
	"tine/snapshot/gitimport/objects"
	"tine/snapshot/image"
)

// branch is the workspace's only one. It has a fixed name, since the source's would make the checkpoint's id depend on
// where the commit came from (L3).
const branch = "main"

// config is the workspace's .git/config. Nothing of the source's is in it (S11).
//
// checkStat and trustctime: the index's stat data are those that the fork reports, but for the device, and a fork's
// mount may have an owner map. autocrlf, if the user has it set, would have git see changes that nobody made, and fsmonitor
// leave a daemon behind in every fork. Nothing repacks by itself: that would read every blob.
const config = `[core]
	repositoryformatversion = 0
	filemode = true
	bare = false
	logallrefupdates = true
	checkStat = minimal
	trustctime = false
	autocrlf = false
	fsmonitor = false
[gc]
	auto = 0
[maintenance]
	auto = false
`

// dotGit makes the workspace's .git: HEAD, one branch, one pack of commits and trees, blobs as loose objects that are
// derived from their contents when they are read, an index that matches the work tree. root must be numbered already.
func (im *importer) dotGit(past *history, w *packWriter, pack *spool, index []tracked, cached *cacheTree) (*item, error) {
	head := past.commits[0]
	dir := func(name string, kids ...*item) *item { return newDir(name, im.when, kids...) }
	var err error
	file := func(name string, data []byte) *item {
		it := &item{name: name, mode: unix.S_IFREG | 0o644, size: int64(len(data)), mtime: im.when}
		if err == nil {
			it.content, err = im.store.Put(data, content.SHA1)
		}
		return it
	}

	sum, idx, perr := w.finish()
	if perr != nil {
		return nil, perr
	}
	packFile := &item{name: fmt.Sprintf("pack-%x.pack", sum), mode: unix.S_IFREG | 0o444, size: pack.Size(), mtime: im.when}
	if packFile.content, err = im.store.PutReader(pack, pack.Size(), content.SHA1); err != nil {
		return nil, err
	}
	idxFile := file(fmt.Sprintf("pack-%x.idx", sum), idx)
	idxFile.mode = unix.S_IFREG | 0o444

	indexFile := file("index", encodeIndex(index, cached))
	// git takes an entry that is as new as the index for one that may have changed since, and reads it ("racy"). A second
	// is what it compares where nanoseconds are not reliable.
	indexFile.mtime = image.Time{Sec: im.newest(index).Sec + 1}
	if m := im.newest(index); m.Nsec > 0 {
		indexFile.mtime.Sec = m.Sec + 2
	}

	objectDirs := im.looseObjects()
	objectDirs = append(objectDirs, dir("info"), dir("pack", idxFile, packFile))
	dot := dir(".git",
		file("HEAD", []byte("ref: refs/heads/"+branch+"\n")),
		file("config", []byte(config)),
		indexFile,
		dir("info"),
		dir("objects", objectDirs...),
		dir("refs", dir("heads", file(branch, []byte(head.id.String()+"\n"))), dir("tags")),
	)
	if len(past.shallow) > 0 {
		ids := make([]string, len(past.shallow))
		for i, id := range past.shallow {
			ids[i] = id.String()
		}
		sort.Strings(ids)
		var b bytes.Buffer
		for _, id := range ids {
			fmt.Fprintln(&b, id)
		}
		dot.add(file("shallow", b.Bytes()))
	}
	return dot, err
}

// newest is the latest time of a file that the index describes.
func (im *importer) newest(index []tracked) image.Time {
	t := im.when
	for i := range index {
		if at := index[i].at; at != nil && t.Before(at.mtime) {
			t = at.mtime
		}
	}
	return t
}

// looseObjects makes the directories 00 to ff, those that have anything.
func (im *importer) looseObjects() []*item {
	order := make([]int, len(im.blobs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(im.blobs[a].id[:], im.blobs[b].id[:]) })
	var dirs []*item
	var dir *item
	last := -1
	for _, i := range order {
		b := &im.blobs[i]
		if first := int(b.id[0]); first != last {
			dir = newDir(hex.EncodeToString(b.id[:1]), im.when)
			dirs = append(dirs, dir)
			last = first
		}
		dir.add(loose(b.id, b.size, im.when))
	}
	return dirs
}

func loose(id objects.ID, size int64, when image.Time) *item {
	return &item{
		name: hex.EncodeToString(id[1:]), mode: unix.S_IFREG | 0o444, size: content.LooseSize(size), mtime: when,
		content: blobID(id).Loose(), kind: image.KindDerived,
	}
}
