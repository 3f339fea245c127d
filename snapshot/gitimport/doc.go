// Package gitimport makes checkpoints of commits. A checkpoint of a commit is its files, owned by 0:0, with the
// committer's time, and a .git with which the system's git works.
//
// Invariants:
//
//   - The source repository is only read, and nothing of its configuration, hooks or refs is used beyond finding objects.
//   - Of blobs only the sizes are read, from object headers; but for those over content.MaxSmall, whose content ids need
//     their bytes, and .gitattributes, for warnings. Contents come later, through the source that is registered with the
//     store, and are checked against their ids there.
//   - What commits, trees and options say decides every byte of the checkpoint (L3): inode numbers follow the order of
//     trees, the branch has a fixed name, packs and loose objects are written without a compressor.
//   - The .git holds the selected commit's history down to the requested depth and nothing else (S11). With paths left out,
//     no object in it names them (S12); source ids are in the provenance only.
//   - An import that fails has published nothing.
//
// The .git of a workspace, all of it with the committer's time but for the index:
//
//	HEAD                  ref: refs/heads/main
//	config                see dotgit.go
//	index                 version 2, with TREE; its stat data are the fork's; a second or more newer than all it names
//	refs/heads/main       the selected commit, or what it was rewritten to
//	shallow               the commits whose parents were left out, if there are any
//	objects/pack/         one pack (version 2, stored blocks, deltas of trees only) of commits and trees, and its index
//	objects/xx/           one file a blob of the history, 0444, derived from the blob when it is read
//	info/ objects/info/ refs/tags/   empty
//
// With Dirty, files are the work tree's and the index is HEAD's, with stat data for what is as in HEAD.
//
// Each import works on its own objects.DB and takes no lock but the store's shared hold.
package gitimport
