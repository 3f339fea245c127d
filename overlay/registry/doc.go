// Package registry is the list of a store's forks: STORE/forks.log, a file that is only appended to, one line a
// change. Its format is in overlay/FORMAT.md.
//
// Writers append under an exclusive lock (STORE/forks.log.lock); readers take none and see a prefix of the changes.
// A line that is cut off at the end is a writer's that died: it never happened, and the next writer removes it. A bad
// line before the end is damage and is reported, never skipped. When most of the file is history, a writer replaces
// it by one that has the present only, with a rename.
//
// An append is not synced: Sync is, and is called before anything that depends on it is promised to be durable (a
// fork's first fsync, overlay.Config.BeforeSync).
//
// Lock order: Registry.mu, then the lock file. A Registry is safe for concurrent use, also by several processes.
package registry
