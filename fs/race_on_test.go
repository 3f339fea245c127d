//go:build race

package fs_test

// raced: the race detector's shadow memory makes measuring memory meaningless.
const raced = true
