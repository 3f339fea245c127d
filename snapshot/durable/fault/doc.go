// Package fault is a durable.FS for tests: it counts the operations that change something, makes a chosen one fail,
// and records them so that a test can see what a power cut after any of them may leave.
//
// The loop of a test that tries every failure of an action is
//
//	for n := 1; ; n++ {
//		f := fault.New(durable.OS)
//		f.FailAt(n, fault.Before, unix.ENOSPC)
//		err := action(f)
//		... the state is the old or the new one; nothing else was left
//		if !f.Failed() {
//			break // the action has fewer than n operations
//		}
//	}
//
// once with each of Before, Half and After. The loop for power cuts records one run of the action and calls
// Recording.Cut for each length and some seeds.
//
// What is written through File.Fd (maps, copy_file_range) is neither counted nor recorded. Reading never fails here.
//
// An FS may be used concurrently; mu is held during each changing operation, so that the recorded order is the real
// one.
package fault
