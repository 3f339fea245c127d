// Package integration tests the whole system: the real tine binary, real FUSE mounts, real git, kill -9.
//
// TestMain builds the binary once and every test drives it the way a user does, through its command line, and looks
// at the result from outside: through a mount, through an exported directory, through /proc. Nothing here imports
// the packages under test.
//
// Most tests need root (mounting, loop devices, namespaces). Without root they are skipped with that reason; with
// CI set in the environment a missing prerequisite is a failure, never a skip.
//
// After each test nothing of it may remain: no mount, process, control group, loop device, nor a file in its store's
// tmp (leftovers_test.go).
//
// Flags after -args: -long runs the long forms, -kills N sets the number of kill -9 rounds, -binary FILE tests an
// existing binary instead of building one.
package integration
