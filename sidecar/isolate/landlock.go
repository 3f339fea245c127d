package isolate

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// rulesetAttr is struct landlock_ruleset_attr as of ABI 6.
type rulesetAttr struct{ accessFS, accessNet, scoped uint64 }

const (
	landlockVersion       = 1 // LANDLOCK_CREATE_RULESET_VERSION
	scopeAbstractSocket   = 1 // LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	landlockWithScopesABI = 6 // Linux 6.12
)

// fenceAbstract keeps the calling thread and what it executes from connecting to abstract unix sockets that were made
// outside: they belong to the network namespace, which a run may share with the host. It says how well that went.
func fenceAbstract(n Network) (string, error) {
	if n == NetworkNone {
		return "private", nil
	}
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, landlockVersion)
	if errno != 0 || abi < landlockWithScopesABI {
		return "shared", nil
	}
	attr := rulesetAttr{scoped: scopeAbstractSocket}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return "", &SetupError{Step: "landlock", Reason: errno.Error()}
	}
	defer unix.Close(int(fd))
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return "", &SetupError{Step: "landlock", Reason: errno.Error()}
	}
	return "fenced", nil
}
