// Package objects reads git object databases: packs with their indexes, loose objects, alternates. It writes nothing.
//
// It stands beside go-git's own object storage, which serves one caller at a time and takes 13 µs to tell one
// object's size; an import asks for the size of every file of a commit, and a mounted fork reads many at once.
// Here a size costs one or two preads, and everything is safe for concurrent use.
//
// Invariants:
//   - whatever Read and Stream give out has been hashed: the bytes are those that the id names, or there is an error;
//   - packs are read with pread, so a pack that shrinks is an error and not a fault; indexes are mapped, and a fault
//     in one is turned into an error;
//   - an object not found makes the pack directories be listed once more, as git does, since a repack may have moved
//     it; a pack whose file is open stays readable after git has deleted it.
//
// Lock order:
//
//	DB.mu (list of packs)
//	  pack.mu (its file and its mapped index)
//	deltaCache.mu (taken alone)
package objects
