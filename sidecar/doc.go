// Package sidecar is the trusted side of tine, as a library: it imports and resolves checkpoints, creates and serves
// forks, runs programs in them, seals what they did, and keeps the records of all that. The command line uses it in
// its own process; nothing has to be running for it.
//
// # Invariants
//
//   - A fork is served by at most one process, the one that holds its lock. Every other process reaches it through that
//     process's control socket (control.go); results are the same either way.
//   - A run's record is durable before its program starts, and says "lost" when the process that ran it is gone.
//   - A run's checkpoint is pinned before its fork exists, until its disposal is acknowledged (A11).
//   - What a run allocates is recorded before it is allocated and disposed of by identity, in the reverse order (C1, C7).
//
// # Lock order
//
//	served.mu (which forks this process serves)
//	  workspace lock of a fork (seal, live fork, removal; Terms)
//	    fork write barrier (overlay)
//	store lock, shared (snapshot), is taken inside snapshot's calls only
package sidecar
