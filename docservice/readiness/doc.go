// Package readiness decides why a server is not ready for a collection, or for one of its shards.
//
//	files := readiness.Source{Contacted: true, Target: 3, Goal: 3, Fetch: progress}.Report()
//	index := readiness.Index{State: readiness.Indexing, Bytes: 4 << 30, Read: 1 << 30}.Report()
//	meter.Observe(readiness.Copy(files, index), now)
//	meter.Estimate(readiness.Copy(files, index)).Reason()
//	// fetching 12 of 40 files, 1.2 GiB of 4.0 GiB, 3 min left: manifest 3 has not been fetched
//
// # States
//
// A copy of a collection in an object store gets from the first state to the last one; a copy of a
// local queue begins at no_files:
//
//	waiting_for_placement -> waiting_for_store -> waiting_for_manifest
//	    -> fetching -> indexing -> catching_up_increments -> ready
//
//	no_files -> indexing -> ready
//
// It leaves ready, and any other state, when what it needs is lost:
//
//	faulted             a fault stops it; the cause names it
//	rebuilding_index    the index is built again from the queue
//	waiting_for_files   entries are known to exist that have not been copied here
//	stale               the copy is older than --max-staleness
//
// # Decisions
//
// The decisions are functions of facts: the state of an index (Index), of files in an object store
// (Source), of a copy, which has both (Copy), and of several copies (Combine). They read no files and
// no clock. A Meter takes the time of each report, and estimates the time left from the recent
// rate. Only package collection decides whether an id is not found.
//
// Reports are values. A Meter is not safe for concurrent use.
package readiness
