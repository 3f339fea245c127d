package testrepo

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// DamageBlobs flips the last byte (of zlib's checksum) of every blob of at most maxSize bytes in dir's packs, in
// place: headers and the beginning of each blob stay readable, but no blob can be read whole any more. It returns
// how many were damaged.
func DamageBlobs(gitDir string, maxSize int64) (int, error) {
	packs, err := filepath.Glob(filepath.Join(gitDir, "objects/pack/*.pack"))
	if err != nil {
		return 0, err
	}
	total := 0
	for _, pack := range packs {
		list, err := Git(gitDir, "verify-pack", "-v", strings.TrimSuffix(pack, ".pack")+".idx")
		if err != nil {
			return total, err
		}
		if err := os.Chmod(pack, 0o644); err != nil {
			return total, err
		}
		n, err := damage(pack, list, maxSize)
		total += n
		if err != nil {
			return total, fmt.Errorf("damage %s: %w", pack, err)
		}
	}
	return total, nil
}

// damage reads lines "ID TYPE SIZE SIZE-IN-PACK OFFSET".
func damage(pack, list string, maxSize int64) (int, error) {
	f, err := os.OpenFile(pack, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n := 0
	for line := range strings.Lines(list) {
		w := strings.Fields(line)
		if len(w) < 5 || w[1] != "blob" {
			continue
		}
		size, err1 := strconv.ParseInt(w[2], 10, 64)
		packed, err2 := strconv.ParseInt(w[3], 10, 64)
		off, err3 := strconv.ParseInt(w[4], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil || size > maxSize {
			continue
		}
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, off+packed-1); err != nil {
			return n, err
		}
		b[0] ^= 0xff
		if _, err := f.WriteAt(b, off+packed-1); err != nil {
			return n, err
		}
		n++
	}
	return n, f.Close()
}
