package gitimport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"tine/snapshot/gitimport/objects"
)

// staged is what the source's own index says of a path.
type staged struct {
	mode uint32 // git's, canonical
	id   objects.ID
}

// readIndex reads which paths a work tree tracks; conflicted ones count once. go-git's reader refuses indexes without a
// checksum (index.skipHash).
func (r *Repository) readIndex() (map[string]staged, error) {
	path := filepath.Join(r.GitDir, "index")
	b, err := objects.ReadRegular(path, maxIndexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	paths, why := parseIndexFile(b)
	if why != "" {
		return nil, &FormatError{r.GitDir, "its index " + why}
	}
	return paths, nil
}

// parseIndexFile decodes an index of version 2, 3 or 4; gitindex.go has the layout of version 2. In 3 an entry may have
// two more bytes of flags; in 4 names are "how many bytes to drop from the last one" and what follows, unpadded.
func parseIndexFile(b []byte) (paths map[string]staged, why string) {
	const cutOff = "is cut off"
	if len(b) < 12+20 || string(b[:4]) != "DIRC" {
		return nil, "is none"
	}
	version, n := binary.BigEndian.Uint32(b[4:]), int(binary.BigEndian.Uint32(b[8:]))
	if version < 2 || version > 4 {
		return nil, fmt.Sprintf("has the unknown version %d", version)
	}
	body := b[12 : len(b)-20]
	if n > len(body)/40 {
		return nil, cutOff
	}
	paths = make(map[string]staged, n)
	last := ""
	for range n {
		if len(body) < 62 {
			return nil, cutOff
		}
		mode := binary.BigEndian.Uint32(body[24:])
		id := objects.ID(body[40:60])
		flags := binary.BigEndian.Uint16(body[60:])
		head := 62
		if flags&0x4000 != 0 {
			head += 2
		}
		if len(body) < head {
			return nil, cutOff
		}
		rest := body[head:]
		prefix := ""
		if version == 4 {
			drop, k := binaryOffset(rest)
			if k == 0 || drop > len(last) {
				return nil, cutOff
			}
			prefix, rest = last[:len(last)-drop], rest[k:]
		}
		end := bytes.IndexByte(rest, 0)
		if end < 0 {
			return nil, cutOff
		}
		last = prefix + string(rest[:end])
		if version == 4 {
			body = rest[end+1:]
		} else {
			size := (head+end)/8*8 + 8
			if len(body) < size {
				return nil, cutOff
			}
			body = body[size:]
		}
		switch mode & 0o170000 {
		case modeTree:
			return nil, "is sparse; `git sparse-checkout reapply --no-sparse-index` makes one that lists all files"
		case 0o100000:
			mode = modeFile | mode&0o111
		}
		paths[strings.TrimSuffix(last, "/")] = staged{mode, id}
	}
	for len(body) >= 8 {
		size := int64(binary.BigEndian.Uint32(body[4:]))
		if string(body[:4]) == "link" {
			return nil, "is split in two; `git update-index --no-split-index` makes one"
		}
		if size > int64(len(body)-8) {
			return nil, cutOff
		}
		body = body[8+size:]
	}
	return paths, ""
}

// binaryOffset reads git's offset encoding (appendDistance) and tells its length, 0 if there is none.
func binaryOffset(b []byte) (v, n int) {
	for n < len(b) && n < 5 {
		c := b[n]
		if n > 0 {
			v++
		}
		n++
		v = v<<7 | int(c&0x7f)
		if c&0x80 == 0 {
			return v, n
		}
	}
	return 0, 0
}
