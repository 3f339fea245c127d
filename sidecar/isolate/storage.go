package isolate

import (
	"os"
	"path/filepath"
	"strings"
)

// backingFiles lists the files in which the blocks of a device ("major:minor") are: who reads those reads the file system.
func backingFiles(dev string) []string { return backingBelow(filepath.Join("/sys/dev/block", dev), 8) }

// backingBelow follows mapped devices to what they are made of. depth bounds the stack of them.
func backingBelow(dir string, depth int) []string {
	var out []string
	if data, err := os.ReadFile(filepath.Join(dir, "loop/backing_file")); err == nil {
		if real, err := filepath.EvalSymlinks(strings.TrimSuffix(string(data), "\n")); err == nil {
			out = append(out, real)
		}
	}
	slaves, _ := filepath.Glob(filepath.Join(dir, "slaves/*"))
	// A partition has its disk's files.
	if disk, err := filepath.EvalSymlinks(dir); err == nil && len(slaves) == 0 && exists(filepath.Join(disk, "partition")) {
		slaves = []string{filepath.Dir(disk)}
	}
	for _, s := range slaves {
		if depth > 0 {
			out = append(out, backingBelow(s, depth-1)...)
		}
	}
	return out
}

// swapFiles lists the files to which the host's memory may be written.
func swapFiles() []string {
	data, err := os.ReadFile("/proc/swaps")
	if err != nil {
		return nil
	}
	return parseSwaps(data)
}

func parseSwaps(data []byte) []string {
	var out []string
	for _, line := range strings.Split(string(data), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 || f[1] != "file" {
			continue
		}
		if real, err := filepath.EvalSymlinks(unescape(f[0])); err == nil {
			out = append(out, real)
		}
	}
	return out
}
