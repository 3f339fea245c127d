// Package fs shows forks to the kernel: FUSE sessions, the caching rules, mounts, and the taking over of mounts from
// a server that died. It has no policy: what to mount, where and for whom is its caller's.
//
// # Sessions
//
// Mount makes a mount that nobody can reach yet; Server.Serve answers for it; the first probe settles what the
// kernel may leave out; only then is it attached. Serving knows nothing of mounting: it takes a descriptor, and the
// INIT message if somebody has read it already.
//
// Node ids are inode numbers, and the kernel holds no file handle of ours, so that a session has no state but the
// fork's: another process can go on with the descriptor.
//
// # Hazards
//
//   - OPEN, OPENDIR and FLUSH are ENOSYS, for the whole connection and for ever. So opens and closes cost nothing and
//     there is no RELEASE, O_TRUNC comes as SETATTR, and permissions can only be checked by the kernel:
//     default_permissions is always on.
//   - So is POLL, by the same probe: os.Open in the serving process itself would otherwise deadlock with the
//     collector, because the runtime polls a new file without giving up its processor.
//   - For the same reason a serving process must not start a program that lies on its own mount, nor start one with
//     its directory there (exec.Cmd.Dir): the runtime waits for a child's exec without giving up its processor. A
//     helper program in between will do. Nor may it touch mapped memory of a file of its own mount.
//   - A thread that waits for its own process's answer can't be killed, and keeps /dev/fuse and the fork's lock open
//     with it: after kill -9 the mount would hang for ever. What a serving process needs done on its own mount it
//     leaves to a process of its own (outsider.go; Conn.Sync).
//   - No other operation may ever answer ENOSYS: the kernel would not ask again on that mount (errno.go turns it
//     into EOPNOTSUPP).
//   - CREATE and TMPFILE answer fh 0 and KEEP_CACHE, without NOFLUSH, so that close writes back mapped pages.
//   - A CREATE that finds the name taken was sent on the word of a stale negative entry. It is answered ESTALE, the
//     kernel looks again and then checks the permissions of what is there.
//   - Entries, attributes, negative entries, directories, symlinks and data never expire. What changes behind the
//     kernel's back (Caller.Conn zero, transactions) is invalidated by event; a name that was negative stays so
//     until then.
//   - Notifications may wait for handlers: they are sent by the engine's event goroutine and by the orphans'
//     goroutine, never by a handler.
//   - An inode without a name ends when the kernel forgets it. FORGET counts aren't kept; instead INVAL_INODE with
//     offset -1 asks the kernel whether it still knows the inode. FORGETs that a dead server had read are lost, so
//     that a session that takes over probes all orphans.
//   - go-fuse captures the root's entry ".go-fuse-epoll-hack"; requests for it go under another id of the root.
//   - go-fuse has no STATX; it is answered here, else there is no btime.
//   - The header has no supplementary groups; they are read from /proc only where an answer depends on them.
//   - With POSIX_ACL and DONT_MASK the umask is the engine's to apply, under a default ACL not at all.
//   - syncfs doesn't wait for write-back on FUSE; a connection is quiet when Waiting is 0 with its users frozen.
//
// # What differs from ext4
//
//   - Device nodes can't be opened (EACCES), set-id bits have no effect: nodev, nosuid.
//   - Changes that are made by the host (Caller.Conn zero) fire no inotify event; those made in the mount do.
//   - Kernel overlayfs takes a mount as a lower directory, not as an upper one (EINVAL).
//   - The times of a FIFO don't change when data passes through it.
//   - chown(-1, -1) of another's file is not refused; like a write it clears set-id bits.
//   - A descriptor that is positioned in the middle of a directory before anything was read through it can be shown
//     the kernel's older listing; reading from the beginning is always current.
//   - FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE and ioctls are EOPNOTSUPP and ENOTTY.
//   - A task that waits for contents can't be killed before they come or fail.
//
// # Errors
//
// One table (errno.go) maps errors to numbers. What has no number of its own is EIO and is logged with its cause.
//
// Lock order: the locks here (Conn.orphans) are leaves; no lock is held over a call into the engine or the kernel.
package fs
