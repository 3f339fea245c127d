// Package snapshot is the store of what exists: contents by id, tree images, checkpoints, their names and where they
// came from. It knows nothing of forks and mounts.
//
// Invariants:
//
//   - Nothing in the store changes once it is published, apart from names, provenance (appended to) and the choice of
//     image form; what is stored under an id is that id's bytes or is found out to be corrupt.
//   - A manifest is published after its image, and an image after its contents are durable. So whatever a manifest reaches
//     is there, or in one of the registered sources.
//   - Publication is one rename. A crash at any point leaves the store as before or with the whole, and at most files in
//     STORE/tmp, a segment's tail without an index, or an image without a manifest, which gc removes.
//   - Reading creates nothing but copies of what sources have (hydration), and works in a store that can't be written.
//   - After a failed sync the store is read-only until it is opened again (ErrReadOnly).
//
// Several processes may use a store. Each appends to segments of its own; what others have published is seen after a miss.
//
// Lock order, outermost first:
//
//	STORE/lock (Shared, Exclusive)
//	  segWriter.syncMu
//	    segWriter.mu
//	      segments.mu
//	  source.mu (while a source is opened)
//	  sources.mu, holds.mu, imageCache.mu, Store.dirsMu, hotSet.mu, sumSet.mu   nothing else is locked while they are held
//
// The layout is specified in FORMAT.md.
package snapshot
