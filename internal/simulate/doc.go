// Package simulate runs a whole fleet in one process, in virtual time, with faults from a seed, and
// compares each answer with an exact account.
//
//	config := simulate.Draw(seed)
//	synctest.Test(t, func(*testing.T) { report, err := simulate.Run(config) })
//
// Everything is production code but the edges: files (disk), network, object store (store), the log
// that is read, memcached, and the requests of the clients.
//
//	application --> log --> updater: append, compact, gc --> store
//	                                                           |
//	clients <-- Boxcar, gRPC, HTTP -- servers <----------------+
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
// id as the newest record says, pools are full, no alert is raised, and servers with idle
// clients hold nothing for requests. Then all processes stop, and the queue and the files are compared
// with the account.
//
// Meanwhile the alerts of deploy/prometheus are evaluated. Each that holds needs a fault that explains
// it, and a fault that is alone and lasts long must raise its alert (causes.go). For this a few runs
// have one fault of several minutes.
//
// One run of ten is destructive: it has up to maxDestructive faults, and some destroy data for
// good. Nothing has to recover, but each answer must be right.
//
// With Config.Secure the servers require TLS and tokens, of which one is revoked (access.go).
//
// With Config.Echo a service that others built with boxcarrpc runs without faults: TLS, traces,
// custom error codes (echo.go).
//
// # Pools
//
//	config := simulate.DrawPools(seed)
//
// The second scenario has no documents: up to 60 servers of boxcarrpc with small handlers, and up to
// six front ends, each with a pool, that send calls and receive streams. It has what needs many
// servers: subsets, zones, discovery, hedges, priorities, limits, most servers silent, all away,
// rolling restarts, hostile clients.
//
//	front ends: pool --> calls, streams --> servers: handler
//	     |   ^                                   |
//	     |   +-- discovery: list, registry, etcd-+
//	     +--> account of the calls <-------------+
//
// # Order
//
// Each operation of a disk, a link or a store sleeps for a time that is drawn by its key (package
// chance). The clock of the bubble advances when all goroutines are blocked, so one operation ends
// at a time, in an order that the seed decides. Which of the goroutines of one instant runs first is
// decided by the runtime, so a failure does not always repeat with its seed. Command repeat runs the
// tests with a runtime that decides the same way each time:
//
//	go run ./internal/simulate/repeat -test.run TestSeeds -seed 7 -seeds 1
//
// Waiting for a mutex counts as being blocked, so that an operation may sleep while its caller
// holds one: see durable_mutex.go. The tests need
//
//	go test -tags simulation -ldflags=-checklinkname=0 ./internal/simulate
//
// # Rules
//
// The rules that an answer or a state can violate are in account.go (bytes, invented, old, not found,
// list, expired), clients.go (ready, incomplete), updater.go (source), settle.go (liveness, queue,
// files), takeover.go (bucket, publishers), lifecycle.go (pinned, bucket), erased.go (erased),
// truncation.go (withdrawn), nearby.go (forked), adapters.go and adapters_http.go (batch, connection age,
// admission), load.go (load), failures.go (failed), access.go (access), conditions.go (condition, head),
// prober.go (health, readiness, metrics, files), causes.go (alerts),
// baseline.go (pool, idle server, scrub, canary, requests, stopped server) and echo_clients.go (echo).
// Those of pools are in rpc.go (answer, twice, processed, code, deadline, late, same server, fail),
// frontend.go (outage, stream), backend.go (slot, share, priority), poolfaults.go (share) and
// poolsettle.go (full, waiting, number, liveness, steady, leak).
package simulate
