// Package dirimport makes checkpoints of plain directories: every inode with its type, mode, owner, modification time in
// nanoseconds, extended attributes with ACLs, hard links and holes, whatever bytes its name has.
//
// Invariants:
//
//   - The directory is only read, each step relative to an open directory and without following symlinks.
//   - Two imports of equal trees give one checkpoint id, wherever they lie: inode numbers are given out in the order of
//     names, change and birth times, which no tool can copy, are the modification time.
//   - A tree that holds the store itself, a mounted fork, or a file system of the kernel's own is refused, not entered.
//   - A file that changes while it is read is an error: the checkpoint has what was there at one time, or nothing.
//
// One goroutine walks; workers hash. Neither takes a lock but the store's shared hold.
package dirimport
