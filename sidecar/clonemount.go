package sidecar

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// cloneMount takes a copy of the mount at target out of the mount namespace of process pid, for another namespace. A
// mount can only be copied from inside its namespace, so a thread goes there, and ends with its task.
func cloneMount(pid int, target string) (*os.File, error) {
	type result struct {
		fd  int
		err error
	}
	done := make(chan result)
	go func() {
		// Never unlocked: the runtime ends a thread that is left in another namespace.
		runtime.LockOSThread()
		fd, err := cloneInside(pid, target)
		done <- result{fd, err}
	}()
	r := <-done
	if r.err != nil {
		return nil, fmt.Errorf("the workspace of the run with process %d: %w", pid, r.err)
	}
	return os.NewFile(uintptr(r.fd), "workspace"), nil
}

func cloneInside(pid int, target string) (int, error) {
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ns)
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return -1, err
	}
	if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
		return -1, err
	}
	return unix.OpenTree(unix.AT_FDCWD, target, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}
