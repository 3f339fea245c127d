package isolate

import "golang.org/x/sys/unix"

// 32-bit programs are not run: their calling convention is in no entry.
var conventions = []convention{{
	arch:   unix.AUDIT_ARCH_AARCH64,
	denied: mainCalls,
	absent: []uint32{unix.SYS_CLONE3},
	clone:  unix.SYS_CLONE, unshare: unix.SYS_UNSHARE, socket: unix.SYS_SOCKET, newest: newestCall,
}}
