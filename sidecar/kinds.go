package sidecar

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"tine/snapshot/image"
)

const (
	kindMask = unix.S_IFMT
	dirKind  = unix.S_IFDIR
	fileKind = unix.S_IFREG
	linkKind = unix.S_IFLNK
)

// kindName is what documents call the type in mode.
func kindName(mode uint32) string {
	switch mode & kindMask {
	case dirKind:
		return "directory"
	case fileKind:
		return "file"
	case linkKind:
		return "symlink"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFCHR:
		return "character device"
	case unix.S_IFBLK:
		return "block device"
	}
	return fmt.Sprintf("type %#o", mode&kindMask)
}

func octal(mode uint32) string {
	if mode == 0 {
		return ""
	}
	return fmt.Sprintf("%06o", mode)
}

func treeEntry(path string, n image.Node) TreeEntry {
	return TreeEntry{
		Schema: "tine.entry/v1", Path: path, RawPath: rawPath(path), Kind: kindName(n.Mode), Mode: octal(n.Mode), UID: n.UID, GID: n.GID,
		Size: n.Size, Links: n.Nlink, Inode: n.Ino, Content: n.Content.String(), Gitlink: hex.EncodeToString(n.Gitlink),
		MTime: time.Unix(n.Mtime.Sec, int64(n.Mtime.Nsec)).UTC().Format(time.RFC3339Nano),
	}
}

// rawPath is the base64 of a path that JSON strings can't hold, "" for the others.
func rawPath(path string) string {
	if utf8.ValidString(path) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(path))
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
