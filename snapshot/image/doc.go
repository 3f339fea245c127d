// Package image is the tree image: a flat file that holds a checkpoint's inodes and names and is read in place. Its
// layout and the definition of a checkpoint's identity are in snapshot/FORMAT.md.
//
// Builder makes an image in the base form, Delta one that says what differs from a base; Open gives either as an
// Image, which implements Tree. Encode without Write gives the identity before the file has a name.
//
// Invariants:
//
//   - An Image never changes, and neither do the nodes taken from it: their slices are shared.
//   - identity(delta over base) == identity(the same tree built from nothing). Delta computes it from the base's
//     cached hashes in O(changes * depth).
//   - nlink, parent and the place of a directory's one name are computed from the entries when an image is made.
//   - A page is used only after its checksum was found right. Whatever is read is checked to be inside the file and of
//     the right form, so that an image from anywhere gives a *CorruptError for what is wrong and never a panic, a cycle,
//     or work and memory beyond its own size. That it is also *true* (that nlink, counts and hashes are what the tree
//     gives) is known after Verify, which must come before an image from another machine is used.
//   - A page that can't be read (SIGBUS: the file was truncated, the disk failed) is a *CorruptError too. A fault in
//     mapped memory is fatal in Go unless the goroutine has asked for a panic, so every method that touches the mapping
//     begins with defer guard(debug.SetPanicOnFault(true), ...). Callbacks run outside of it.
//   - A mapping lives as long as a method that uses it, an Image, or a delta over it; Close never pulls it away.
//
// There are no locks: pages are marked as checked, and decoded xattr sets are cached, by atomic writes of what any
// goroutine would write.
package image
