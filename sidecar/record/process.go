package record

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Self names the calling process.
func Self() (Process, error) {
	start, err := startTime(os.Getpid())
	if err != nil {
		return Process{}, err
	}
	boot, err := bootID()
	return Process{PID: os.Getpid(), Start: start, Boot: boot}, err
}

// Alive reports whether the very process still runs. What can't be told counts as alive.
func (p Process) Alive() bool {
	if boot, err := bootID(); err == nil && boot != p.Boot {
		return false
	}
	start, err := startTime(p.PID)
	if os.IsNotExist(err) {
		return false
	}
	return err != nil || start == p.Start
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// startTime is field 22 of /proc/pid/stat; the command's name before it may hold spaces and parentheses.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	return strconv.ParseUint(fields[19], 10, 64)
}
