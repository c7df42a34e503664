// Package etcd keeps the numbers of servers and clients in etcd.
//
//	registry, err := etcd.Open("etcd://10.0.0.1:2379,10.0.0.2:2379/search", nil)
//	number, err := registry.Backend(discovery.Server{Address: "10.0.1.7:7070"}) // a server
//
//	number, err := registry.Frontend("fe-3") // a client
//	pool, err := boxcarrpc.NewPool(registry.Source(number), &boxcarrpc.PoolOptions{SubsetSize: 20})
//
// A number is the smallest that was free, and nobody else's while it is held: at no
// moment do two processes hold the same, whatever is killed, stopped or cut off.
//
// # Keys
//
// Two for each number, under two leases:
//
//	PREFIX/backends/7          {"address":"10.0.1.7:7070","weight":2}    TTL
//	PREFIX/claims/backends/7   10.0.1.7:7070                             TTL + 2 margins
//	PREFIX/frontends/3         {"address":"fe-3"}
//	PREFIX/claims/frontends/3  fe-3
//
// One transaction writes both, if there is no such claim. Who is about to claim one is in
// line, under the lease of the claim to be:
//
//	PREFIX/line/backends/694d8a...     deleted by the same transaction
//
// and leaves as many of the free numbers as are ahead to these: a thousand servers that
// start at once claim a thousand different numbers, and not all of them the same.
//
// The claim is renewed first. So a server that has died is gone for its clients after a
// TTL, and its number is given out again later:
//
//	the last keep-alive that was acknowledged
//	| sent      | received         holder stops   clients stop   number is free
//	|-----------|------------------|--------------|--------------|
//	0                              TTL-margin     TTL            2 margins later
//
// The holder counts from the moment at which it sent the last keep-alive that was
// acknowledged, on its own monotonic clock, and looks at the clock whenever it is
// asked for its number: it holds none after TTL - margin even if it was stopped
// meanwhile. etcd counts from when it received that, which was later. The clocks
// need not agree, but what one counts as TTL must not be more than three margins
// longer for the other; a machine that sleeps counts nothing while it does.
//
// A holder that could not renew in time goes on trying: as long as its claim is there
// nobody else has the number, and it is held again with the first answer. If the
// claim has ended it takes the same number if that is free, else the smallest.
//
// A server that was started again on the same address before the old claim has ended
// waits for its end, so that it has the same number again if that is the smallest and
// nobody was faster.
//
// # Watching
//
// A watcher reads all servers and follows the changes; those within 100 ms are told
// together. If etcd has compacted revisions that it had yet to see, it reads all
// again and replaces the set in one step. While etcd is away the last set holds.
// Holders lose their numbers then, after TTL - margin, but not their servers:
// watchers hear of nothing, and etcd starts all leases anew when it is back. How many
// clients there are is told only with Options.CountFrontends.
//
// # Security
//
// TLS, certificates on both sides and a user with a password are named in the target,
// as files: see Open. The user needs to read and write below PREFIX/.
//
// Concurrency: all types are safe for concurrent use.
package etcd
