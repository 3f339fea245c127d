package isolate

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// capabilities are what a program run as root has: Docker's default set less MKNOD. None of them undoes a mount, reads
// past a covering (DAC_READ_SEARCH) or looks into another process (SYS_PTRACE).
//
// no_new_privs is not set: sudo and su work, within this set. What they could gain is bounded anyway.
var capabilities = []uint{
	unix.CAP_AUDIT_WRITE, unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_NET_BIND_SERVICE,
	unix.CAP_NET_RAW, unix.CAP_SETFCAP, unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_SETUID, unix.CAP_SYS_CHROOT,
}

// dropPrivileges restricts the calling thread so that what it executes has no more than the capabilities above. The thread
// itself keeps what it needs to start programs as other users.
func dropPrivileges() error {
	keep := map[uint]bool{}
	for _, c := range capabilities {
		keep[c] = true
	}
	last, err := lastCapability()
	if err != nil {
		return setupErr("read cap_last_cap", err)
	}
	for c := uint(0); c <= last; c++ {
		if keep[c] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			return setupErr(fmt.Sprintf("drop capability %d", c), err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return setupErr("clear ambient capabilities", err)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return setupErr("capget", err)
	}
	// Inherited ones survive an exec by root even when they aren't in the bounding set.
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return setupErr("capset", err)
	}
	return nil
}

func lastCapability() (uint, error) {
	data, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 8)
	return uint(n), err
}
