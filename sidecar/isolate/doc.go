// Package isolate runs one program in a view of the host from which it cannot get out, without any container engine.
//
// A run consists of three generations of processes:
//
//	caller      tine itself; it serves the workspace, owns cgroups and scratch files, enforces the deadline
//	  init      the same binary, re-executed as process 1 of new mount, pid, ipc, uts, cgroup (and network)
//	            namespaces; builds the view, starts the program, reaps, passes signals and the exit status on
//	    program what the user asked for, with few capabilities and a system call filter
//
// Invariants:
//
//   - Nothing outlives the caller: init is killed with the thread that made it (PDEATHSIG) and ends by itself when the
//     control socket reports end of file; a dead process 1 takes its pid namespace along.
//   - The view holds only what was put into it. The root is a fresh tmpfs with the host's top-level directories bound
//     read-only and nodev; the old root is detached. What must not be seen (S13) is absent, or covered by a mount that
//     the program lacks CAP_SYS_ADMIN to remove and that a new user namespace would inherit locked.
//   - Coverings follow the file, not the name: each place where a mount shows the same superblock's same directory is
//     covered too (see plan).
//   - No descriptor but the three standard ones reaches the program, and none of those may be a directory or a block device.
//   - The program can't reach the host's binary that became init: it is executed through a read-only clone of its mount.
//   - A limit that this host can't enforce is refused (UnsupportedError), never ignored.
//
// Known limits:
//
//   - With the host's network, its TCP and UDP services can be reached, and raw sockets see its traffic (--network none).
//     Abstract sockets are fenced off from Linux 6.12 on; before, the report says that they are shared.
//   - What appears on the host during a run is covered after a second: a socket of a restarted daemon, a hidden directory
//     that was removed and made again. Named pipes of the host can be opened where permissions let root.
//   - The program runs with the user's id on the host, so root reads whatever on the host is not hidden.
//   - FUSE mounts of the host are left out, since nobody can tell what they mirror.
//
// A binary that uses this package calls MaybeInit before anything else in main (and in TestMain).
//
// No lock is held across a system call that may wait on a workspace: the caller may be the server of that workspace.
package isolate
