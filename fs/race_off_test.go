//go:build !race

package fs_test

const raced = false
