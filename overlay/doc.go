// Package overlay is the fork engine: a writable view of an immutable tree of inodes, kept as a difference in memory
// and in a journal. It knows POSIX and nothing of FUSE.
//
// A fork's state is (base image, changed names, changed inodes, next inode number). An operation is planned as a list
// of effects, appended to the journal of the live layer with one write(2), applied to the state, and then answered;
// a replay applies the same effects by the same code. Contents are extents over the base's content, in the journal
// (small writes) or in the layer's data file; nothing is copied up. Formats: FORMAT.md.
//
// A rotation makes the state immutable: it copies the B-trees in O(1) and goes on in a new layer. A layer that isn't
// live never changes, so views and forks of forks share it.
//
// # Invariants
//
// CheckInvariants verifies them; tests run it around everything they do.
//
//	I1  an entry's inode exists and has the entry's type
//	I2  a directory has one name, in its parent; nlink = 2 + subdirectories
//	I3  a directory's count is its number of entries
//	I4  other inodes: nlink = number of names; nlink = 0 exactly for orphans
//	I5  extents are ordered and disjoint; those with bytes lie within the size; holes lie over base content only
//	I6  inodes, bytes, own inodes and own bytes are the sums over all inodes
//	I7  a whiteout's name is in the base; entries at positions from NewPos on are in both indices
//	I8  every byte of the live data file is at most one of: shown, dead, free
//	I9  a node or extent set whose epoch isn't its state's is never written to (views depend on it)
//	I10 what a state shows is a function of the base and of the journals up to some record
//
// # Durability
//
// An acknowledged operation is in the page cache of the journal: it survives the death of this process. Fsync writes
// data, then a sync mark that names what is durable, then the journal. A run of the data file is written again only
// after a sync mark covers its death and no read from before it is left. After a power cut the journal is verified
// from the last mark on and cut at the first block that is missing.
//
// # Lock order
//
//	gate (write barrier: shared by changes, exclusive by Park, Rotate, Txn, Close)
//	└── Fork.turn (one rotation, transaction or closing at a time)
//	    └── Fork.syncMu (one sync at a time; held over fdatasync, and by a transaction; a rotation doesn't wait for it)
//	        └── Fork.mu (state, journal append, space; never held over fdatasync, contents, data file writes, events)
//	            ├── layers.mu (open files)
//	            ├── copyMu (copying B-trees that two states share)
//	            ├── lockFiles.mu
//	            └── events.mu
//	readers.mu (open contents): alone
//
// Nothing is locked while an event is told.
package overlay
