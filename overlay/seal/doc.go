// Package seal turns a fork at one instant into a published checkpoint.
//
// Sealing happens after the rotation, while the fork's users go on: it reads an immutable overlay.View. It costs what was
// changed, not what the base has: changed contents are hashed in parallel and stored, of large files only the changed
// chunks, and the tree is written as a delta over the base's image. A fork without a difference seals to its base's id
// (L2). Nothing can be found before the publication's last rename (L1).
package seal
