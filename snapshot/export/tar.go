package export

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"tine/snapshot/content"
	"tine/snapshot/image"
)

// ToTar writes a tree as a tar archive in the PAX format: times in ns, extended attributes as SCHILY.xattr records, hard links,
// device nodes, large files with holes in GNU's sparse format 1.0. Equal trees give equal archives. Sockets, which tar
// can't hold, are skipped.
func ToTar(ctx context.Context, f image.Files, w io.Writer, opt Options) error {
	t := &tarWriter{ctx: ctx, files: f, opt: &opt, out: w, tar: tar.NewWriter(w), first: map[uint64]string{}, buf: make([]byte, 256<<10)}
	root, err := f.Node(image.Root)
	if err == nil {
		err = t.tree(root, ".")
	}
	if err == nil {
		err = t.tar.Close()
	}
	if err != nil {
		return fmt.Errorf("export as tar: %w", err)
	}
	return nil
}

type tarWriter struct {
	ctx   context.Context
	files image.Files
	opt   *Options
	out   io.Writer
	tar   *tar.Writer
	first map[uint64]string // inodes with several names → the first one
	buf   []byte
}

func (t *tarWriter) tree(n image.Node, name string) error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	if err := t.tar.WriteHeader(header(&n, name+"/", tar.TypeDir)); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	entries, err := list(t.files, n.Ino)
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	for _, d := range entries {
		child, err := t.files.Node(d.Ino)
		if err != nil {
			return fmt.Errorf("%q: %w", d.Name, err)
		}
		p := name + "/" + d.Name
		if child.Mode&modeType == modeDir {
			err = t.tree(child, p)
		} else {
			err = t.node(&child, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var tarTypes = map[uint32]byte{
	modeRegular: tar.TypeReg, modeSymlink: tar.TypeSymlink, modeFIFO: tar.TypeFifo, modeChar: tar.TypeChar, modeBlock: tar.TypeBlock,
}

func (t *tarWriter) node(n *image.Node, name string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%q: %w", name, err)
		}
	}()
	typ, ok := tarTypes[n.Mode&modeType]
	if !ok {
		t.opt.skip(name[2:], "socket")
		return nil
	}
	h := header(n, name, typ)
	if n.Nlink > 1 {
		if first, ok := t.first[n.Ino]; ok {
			h.Typeflag, h.Linkname, h.Devmajor, h.Devminor = tar.TypeLink, first, 0, 0
			return t.tar.WriteHeader(h)
		}
		t.first[n.Ino] = name
	}
	switch typ {
	case tar.TypeSymlink:
		if h.Linkname, err = readLink(t.files, n); err != nil {
			return err
		}
	case tar.TypeChar, tar.TypeBlock:
		h.Devmajor, h.Devminor = int64(n.Rdev>>8&0xfff), int64(n.Rdev&0xff|n.Rdev>>12&0xfff00)
	case tar.TypeReg:
		return t.file(n, h)
	}
	defer t.opt.progress(n.Size)
	return t.tar.WriteHeader(h)
}

func header(n *image.Node, name string, typ byte) *tar.Header {
	h := &tar.Header{
		Format: tar.FormatPAX, Typeflag: typ, Name: name, Mode: int64(n.Mode & 0o7777), Uid: int(n.UID), Gid: int(n.GID),
		ModTime: time.Unix(n.Mtime.Sec, int64(n.Mtime.Nsec)),
	}
	for _, x := range n.Xattrs {
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords["SCHILY.xattr."+x.Name] = string(x.Value)
		if text := aclText(x.Value); text != "" && aclRecords[x.Name] != "" {
			h.PAXRecords[aclRecords[x.Name]] = text
		}
	}
	return h
}

func (t *tarWriter) file(n *image.Node, h *tar.Header) error {
	r, err := t.files.OpenFile(*n)
	if err != nil {
		return err
	}
	defer r.Close()
	defer t.opt.progress(n.Size)
	if data := dataRanges(r); data != nil {
		return t.sparse(r, h, data)
	}
	h.Size = n.Size
	if err := t.tar.WriteHeader(h); err != nil {
		return err
	}
	return EachData(t.ctx, r, t.buf, func(b []byte, _ int64) error {
		_, err := t.tar.Write(b)
		return err
	})
}

// dataRanges lists the parts that are not holes as (offset, length); nil if there are no holes.
func dataRanges(r content.Reader) [][2]int64 {
	s, ok := r.(content.Sparse)
	if !ok {
		return nil
	}
	data, covered := [][2]int64{}, int64(0)
	for off := int64(0); off < r.Size(); {
		start, end := s.NextData(off)
		if start >= r.Size() {
			break
		}
		data = append(data, [2]int64{start, end - start})
		covered += end - start
		off = end
	}
	if covered == r.Size() {
		return nil
	}
	return append(data, [2]int64{r.Size(), 0}) // as GNU tar ends its map
}

// sparse writes a file in GNU's sparse format 1.0: an ordinary file whose PAX records give its real name and size, and whose
// data begin with the map, in decimal lines, padded to a block. archive/tar reads it but doesn't write it.
func (t *tarWriter) sparse(r content.Reader, h *tar.Header, data [][2]int64) error {
	m := strconv.AppendInt(nil, int64(len(data)), 10)
	m = append(m, '\n')
	var stored int64
	for _, d := range data {
		m = append(strconv.AppendInt(m, d[0], 10), '\n')
		m = append(strconv.AppendInt(m, d[1], 10), '\n')
		stored += d[1]
	}
	m = append(m, make([]byte, -len(m)&511)...)
	if err := t.tar.Flush(); err != nil {
		return err
	}
	if err := t.sparseHeader(h, r.Size(), stored+int64(len(m))); err != nil {
		return err
	}
	if _, err := t.out.Write(m); err != nil {
		return err
	}
	err := EachData(t.ctx, r, t.buf, func(b []byte, _ int64) error {
		_, err := t.out.Write(b)
		return err
	})
	if err != nil {
		return err
	}
	_, err = t.out.Write(make([]byte, -stored&511))
	return err
}
