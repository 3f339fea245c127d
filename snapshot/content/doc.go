// Package content names bytes: what a content id is and how it is computed. It stores nothing.
//
// A content id is a function of the bytes and of the checkpoint's git object format, and of nothing else:
//
//   - bytes that are exactly the canonical loose-object encoding of a blob (see LooseSize) have the id
//     (LooseSHA1 | LooseSHA256, the blob's git id), whatever their size;
//   - other bytes of at most MaxSmall have their git blob id (GitSHA1 | GitSHA256);
//   - larger ones have the root of a SHA-256 tree over chunks of ChunkSize (Tree256), so that whoever knows which chunks
//     changed re-hashes only those.
//
// The encodings are specified in snapshot/FORMAT.md ("Content ids").
package content
