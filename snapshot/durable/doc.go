// Package durable is the only place that makes files survive: everything that tine keeps on disk is written,
// synced, renamed and locked through it, so that one reader can check the order of system calls and one test layer
// (durable/fault) can fail or replay each of them.
//
// A whole file is published as
//
//	openat(tmp, O_CREAT|O_EXCL) write... fdatasync(tmp) renameat(tmp, name) fsync(directory)
//
// so that after a power cut the name has the old bytes or all of the new ones, and once the call has returned, the
// new ones. PublishNewFile uses linkat instead of renameat and never replaces. Appending to an open file is the
// caller's: File.Write, then File.Datasync before anything that depends on it is acknowledged.
//
// After a failed Sync or Datasync the kernel may have dropped the dirty pages and marked them clean, so that calling
// it again proves nothing. Callers treat it as fatal for that file: stop writing, reopen, verify.
//
// Locks are flock(2) on a file opened for the lock alone: they belong to that open file description, not to the
// process, so other descriptors of the same file may be closed freely, and they end with the process. A child that
// inherits the descriptor would keep the lock; it is opened O_CLOEXEC.
//
// Values of this package have no locks of their own. File follows os.File: ReadAt, WriteAt and Datasync are safe for
// concurrent use, Write is not.
package durable
