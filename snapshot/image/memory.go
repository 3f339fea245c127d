package image

import (
	"bytes"
	"unsafe"
)

// addressOf is where a mapping begins.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// bytesOf is a string's bytes, not to be written, without copying them.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

func compareNames(a, b []byte) int { return bytes.Compare(a, b) }
