package lsm

import "sync/atomic"

// counters are the counters behind Stats.
type counters struct {
	syncs, syncNanos    atomic.Uint64
	flushes, flushBytes atomic.Uint64
	merges, mergeBytes  atomic.Uint64
	failures            atomic.Uint64
	delays, delayNanos  atomic.Uint64
	stalls, stallNanos  atomic.Uint64
}
