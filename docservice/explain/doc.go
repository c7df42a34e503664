// Package explain states why an id of a collection is served or not.
//
//	report := explain.Explain(explain.Question{Collection: "jobs", ID: "4711", Servers: answers, Now: time.Now()})
//	fmt.Println(report.Verdict, report.Reason, report.Command)
//
// A server answers a [Request] with its [Facts], over the built-in stream [Method] of Boxcar, so
// that it answers also while it drains or is not ready. Explain compares the facts of several
// servers and the placement: it is a pure function. The page of a server explains its own facts
// with it, boxcar explain those of all servers of the shard.
//
// # How versions are compared
//
// The addresses of a queue ascend, so an address identifies a version, and the position of a server
// states which versions it has read. The newest version that any server knows, a delete included,
// decides for all: a server before it is behind. The index has no entry for a deleted id. One
// server that does not find the id therefore searches its queue (Request.History), within
// [HistoryTime].
//
// A server that was not asked, or lacks the newest segments as all others do, may hide a later
// version: docstore-updater explain looks at the source.
package explain
