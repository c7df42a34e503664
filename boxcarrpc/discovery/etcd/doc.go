// Package etcd registers servers and clients in etcd and gives them numbers.
//
//	registry, err := etcd.Open("etcd://10.0.0.1:2379,10.0.0.2:2379/search", nil)
//	number, err := registry.Backend(discovery.Server{Address: "10.0.1.7:7070"}) // a server
//
//	number, err := registry.Frontend("fe-3") // a client
//	pool, err := boxcarrpc.NewPool(registry.Source(number), &boxcarrpc.PoolOptions{SubsetSize: 20})
//
// A number is the lowest free one. Two processes never hold the same number at the same
// time, also if processes are killed or stopped, or the network is partitioned.
//
// # Keys
//
// Each number has two keys with separate leases:
//
//	PREFIX/backends/7          {"address":"10.0.1.7:7070","weight":2,"zone":"eu-1a"}   TTL
//	PREFIX/claims/backends/7   10.0.1.7:7070                                           TTL + 2 margins
//	PREFIX/frontends/3         {"address":"fe-3"}
//	PREFIX/claims/frontends/3  fe-3
//
// With Options.Zone the word "frontends" is followed by "-of-" and the zone.
//
// One transaction writes both if the claim does not exist. A claimant first enters a
// queue, with the lease of its future claim:
//
//	PREFIX/line/backends/694d8a...     deleted by the same transaction
//
// With n claimants ahead of it, it skips the n lowest free numbers. A thousand servers
// that start at once thus claim a thousand different numbers without conflicts.
//
// The holder renews the claim before the entry. Clients stop using a dead server after
// the TTL, and its number becomes free later:
//
//	the last acknowledged keep-alive
//	| sent      | received         holder stops   clients stop   number is free
//	|-----------|------------------|--------------|--------------|
//	0                              TTL-margin     TTL            2 margins later
//
// The holder measures from the moment it sent the last acknowledged keep-alive, with its
// monotonic clock. It compares the clock whenever it is asked for its number, so that it
// holds none after TTL - margin even if the process was stopped. etcd measures from the
// later moment of receipt. The clocks need not be synchronized, but a TTL on one clock
// must not be more than three margins longer on the other. Clocks do not run while a
// machine is suspended.
//
// A holder that could not renew in time continues to try. While its claim exists, no
// other process can have the number, and the holder has it again after the next
// acknowledgement. If the claim has expired, the holder claims the same number if it is
// free, otherwise the lowest free one.
//
// A server that restarts on the same address waits until its old claim has expired, so
// that it can claim the same number again.
//
// # Rows
//
// A server that keeps shards on its disk claims a row: Registry.Row. A row is a number with two more
// keys:
//
//	PREFIX/last/7     10.0.1.7:7070    no lease: the last holder
//	PREFIX/rejoin/7   10.0.1.7:7070    a lease of RowOptions.Rejoin more than the claim
//
// The server that comes back on the same address gets its number, unless another server has
// claimed it. Other servers do not claim it while PREFIX/rejoin/7 exists. The entry of a row
// is written when the server is ready: Number.Show.
//
// The claim of a row may have a token after the address (RowOptions.Token), which proves that
// the process which made the claim has ended. Then the server that comes back replaces the
// claim and its leases in one transaction and does not wait until they expire.
//
// # Watching
//
// A watcher reads all servers and follows the changes; it reports changes within 100 ms
// together. If etcd has compacted revisions that the watcher has not seen, it reads all
// servers again and replaces the set in one step. While etcd is unavailable, the last
// set stays in use. Holders lose their numbers after TTL - margin, but their servers
// stay in the set: watchers see no change, and etcd restarts all leases when it is back.
// The number of clients is reported only with Options.CountFrontends.
//
// # Restoration
//
// etcd that is restored from a backup may have leases, and not the keys that were written under
// them later. So holders verify their keys with each renewal: a lost entry is written again, and
// after the loss of a claim a number is claimed again. Until then, a quarter of the TTL, another
// process may claim the number. Watchers read all servers again within 10 s: a watch would be
// silent until etcd has reached its revision again.
//
// # Security
//
// The target names files for TLS, client certificates, and a user with a password: see
// Open. The user needs read and write permission below PREFIX/.
//
// All types are safe for concurrent use.
package etcd
