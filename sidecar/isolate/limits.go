package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cfsPeriod is the kernel's default scheduling period.
const cfsPeriod = 100 * time.Millisecond

// minMemory is what init and a small program need.
const minMemory = 16 << 20

// setting is one value to write into a new group.
type setting struct {
	what, v1, file, value string
	optional              bool // absence of the file is no failure
}

func (h hierarchies) settings(l Limits) ([]setting, error) {
	var out []setting
	use := func(what, controller string, v2, v1 []setting) error {
		if h.v1[controller] != "" {
			for _, s := range v1 {
				s.what, s.v1 = what, controller
				out = append(out, s)
			}
			return nil
		}
		if h.v2 == "" {
			return &UnsupportedError{What: what, Reason: "no writable control groups"}
		}
		if err := h.enable(controller); err != nil {
			return &UnsupportedError{What: what, Reason: err.Error()}
		}
		for _, s := range v2 {
			s.what = what
			out = append(out, s)
		}
		return nil
	}
	if l.Memory > 0 && l.Memory < minMemory {
		return nil, &UnsupportedError{What: "memory limit", Reason: "less than 16 MiB: process 1 of the run needs most of that"}
	}
	if l.Memory > 0 {
		v := strconv.FormatInt(l.Memory, 10)
		err := use("memory limit", "memory",
			[]setting{{file: "memory.max", value: v}, {file: "memory.swap.max", value: "0", optional: true}},
			[]setting{{file: "memory.limit_in_bytes", value: v}, {file: "memory.memsw.limit_in_bytes", value: v, optional: true}})
		if err != nil {
			return nil, err
		}
	}
	if l.CPUs > 0 {
		period := cfsPeriod.Microseconds()
		quota := int64(l.CPUs * float64(period))
		if quota < 1000 { // the kernel's least
			return nil, &UnsupportedError{What: "cpu limit", Reason: "less than 0.01 of a processor"}
		}
		err := use("cpu limit", "cpu",
			[]setting{{file: "cpu.max", value: fmt.Sprintf("%d %d", quota, period)}},
			[]setting{{file: "cpu.cfs_period_us", value: strconv.FormatInt(period, 10)}, {file: "cpu.cfs_quota_us", value: strconv.FormatInt(quota, 10)}})
		if err != nil {
			return nil, err
		}
	}
	if l.Pids > 0 {
		// Process 1 and its threads count too.
		v := strconv.FormatInt(l.Pids+initThreads, 10)
		s := []setting{{file: "pids.max", value: v}}
		if err := use("process limit", "pids", s, s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// initThreads is the allowance for process 1: GOMAXPROCS is 2 there, and a handful of its threads block.
const initThreads = 16

// enable turns a v2 controller on for the children of the root and of the parent group.
func (h hierarchies) enable(controller string) error {
	have, err := os.ReadFile(filepath.Join(h.v2, "cgroup.controllers"))
	if err != nil {
		return err
	}
	if !contains(strings.Fields(string(have)), controller) {
		return fmt.Errorf("no %s controller in %s", controller, h.v2)
	}
	parent := filepath.Join(h.v2, parentGroup)
	if err := os.Mkdir(parent, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	for _, dir := range []string{h.v2, parent} {
		f := filepath.Join(dir, "cgroup.subtree_control")
		on, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if contains(strings.Fields(string(on)), controller) {
			continue
		}
		if err := writeControl(f, "+"+controller); err != nil {
			return err
		}
	}
	return nil
}
