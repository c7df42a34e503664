// Package rare makes rare events frequent in simulations of the fleet (see internal/simulate): a
// memtable that is full, a batch of several parts, a scan that takes long. For about half of the seeds,
// a limit is so small that a short run reaches it, or a pause is long, always at the same places for the
// same seed. After the "buggify" of FoundationDB (Zhou et al., "FoundationDB: A Distributed Unbundled
// Transactional Key Value Store",
// SIGMOD 2021).
//
// It has an effect only in builds with the tag simulation. In others, its functions return what they
// are given, and the compiler removes the calls.
package rare
