// Package diff tells how two trees differ: as a list of changes, as name-status lines, as line counts, and as a patch that
// `git apply` takes.
//
// Trees are compared path by path. A path that is gone and one that is new are one rename when they are names of one inode.
// What a change consists of (content, mode, owner, times, ...) is exact; times alone make a change only where nothing
// else explains them.
package diff
