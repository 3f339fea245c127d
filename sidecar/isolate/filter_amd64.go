package isolate

import "golang.org/x/sys/unix"

var conventions = []convention{{
	arch: unix.AUDIT_ARCH_X86_64,
	denied: append([]uint32{
		unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_QUERY_MODULE, unix.SYS_SYSFS, unix.SYS__SYSCTL,
		unix.SYS_USELIB, unix.SYS_USTAT,
	}, mainCalls...),
	absent: []uint32{unix.SYS_CLONE3},
	clone:  unix.SYS_CLONE, unshare: unix.SYS_UNSHARE, socket: unix.SYS_SOCKET, newest: newestCall,
}, {
	// 32-bit programs, in the order of Linux's syscall_32.tbl.
	arch: unix.AUDIT_ARCH_I386,
	denied: []uint32{
		21,  // mount
		22,  // umount
		25,  // stime
		51,  // acct
		52,  // umount2
		62,  // ustat
		79,  // settimeofday
		86,  // uselib
		87,  // swapon
		88,  // reboot
		101, // ioperm
		103, // syslog
		110, // iopl
		111, // vhangup
		113, // vm86old
		115, // swapoff
		127, // create_module
		128, // init_module
		129, // delete_module
		130, // get_kernel_syms
		131, // quotactl
		135, // sysfs
		149, // _sysctl
		166, // vm86
		167, // query_module
		169, // nfsservctl
		217, // pivot_root
		253, // lookup_dcookie
		264, // clock_settime
		283, // kexec_load
		286, // add_key
		287, // request_key
		288, // keyctl
		336, // perf_event_open
		338, // fanotify_init
		342, // open_by_handle_at
		346, // setns
		350, // finit_module
		357, // bpf
		374, // userfaultfd
		404, // clock_settime64
		425, // io_uring_setup
		426, // io_uring_enter
		427, // io_uring_register
		428, // open_tree
		429, // move_mount
		430, // fsopen
		431, // fsconfig
		432, // fsmount
		433, // fspick
		442, // mount_setattr
		443, // quotactl_fd
		467, // open_tree_attr
	},
	absent: []uint32{
		102, // socketcall: its arguments are out of a filter's sight; C libraries have called socket since Linux 4.3
		435, // clone3
	},
	clone: 120, unshare: 310, socket: 359, newest: newestCall,
}}
