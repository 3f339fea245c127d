// Package testrepo makes the git repositories that the tests work on: one from the Go source tree, real content of
// over 9,000 files, and a generated one of any size whose content is cut from real sources.
//
// Both are deterministic: authors, dates and order are fixed, so a repository's commit ids depend on its input only.
package testrepo
