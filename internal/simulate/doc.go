// Package simulate runs a whole fleet in one process, in virtual time, with faults from a seed, and
// compares each answer with an exact account.
//
//	config := simulate.Draw(seed)
//	synctest.Test(t, func(*testing.T) { report, err := simulate.Run(config) })
//
// Everything is production code but the edges: files (disk), network, object store (store), the log
// that is read, memcached, and the clients' questions.
//
//	application --> log --> updater: append, compact, gc --> store
//	                                                           |
//	clients <-- Boxcar, HTTP -- servers <----------------------+
//	    |                           |
//	    +--> account                +-- memcached
//
// With Config.Copies there is no store: a copier on each serving machine copies the directory of
// the queue, and the server serves the copy.
//
// # A run
//
// The seed decides the configuration, the workload, and a schedule of faults (Config). After the
// last fault everything must recover: within settleTime each server is ready and answers each
// id as the newest record says. Then all processes stop, and the queue and the files are compared
// with the account.
//
// # Order
//
// Each operation of a disk, a link or a store sleeps for a time that is drawn by its key (package
// chance). The clock of the bubble advances when all goroutines are blocked, so one operation ends
// at a time, in an order that the seed decides. Goroutines that run at the same instant, and
// random numbers of production code, are not decided by the seed: a failure does not always
// repeat with it.
//
// Waiting for a mutex counts as being blocked, so that an operation may sleep while its caller
// holds one: see durable_mutex.go. The tests need
//
//	go test -tags simulation -ldflags=-checklinkname=0 ./internal/simulate
//
// # Rules
//
// The rules that an answer or a state can violate are in account.go (bytes, invented, old, not
// found, list, expired), clients.go (ready, incomplete) and in settle.go (liveness, queue, files).
package simulate
