package overlay

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"
)

// bootID names the machine's boot: what was written in this boot and not cut off by a power cut can be trusted.
var bootID = sync.OnceValues(func() (id [16]byte, err error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, fmt.Errorf("reading the boot id: %w", err)
	}
	n, err := hex.Decode(id[:], []byte(strings.ReplaceAll(strings.TrimSpace(string(b)), "-", "")))
	if err != nil || n != len(id) {
		return id, fmt.Errorf("boot id %q: %v", b, err)
	}
	return id, nil
})
