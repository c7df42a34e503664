// Package etcdmap keeps the placement of a collection's shards in etcd.
//
//	store, err := etcdmap.Open("10.0.0.1:2379,10.0.0.2:2379", "jobs", nil)
//	defer store.Close()
//	client, err := sharded.NewClient(store, "jobs", ...) // a Store is a placement.Source
//
// # Keys
//
// The keys are below PREFIX/COLLECTION/, with the prefix "docstore" unless the endpoints name
// another one:
//
//	placement/map       the placement.Map
//	placement/control   the placement.Control
//	placement/sizes     the bytes of each shard, by the placer
//	placement/leader/   the election of the placer
//	placement/lock/     the process that chooses its column
//	state/COLUMN/ROW    the placement.ServerState of a server, with its lease
//	column/COLUMN/      the registry of the column's servers (package boxcarrpc/discovery/etcd)
//	zones               the names of the zones, in the order in which they were first used
//
// # Guarantees
//
//   - Only the elected placer changes the map: its transaction requires that it still leads
//     and that the map has not changed since it was read. A placer that was stopped or cut
//     off and continues cannot write.
//   - Epochs only rise. A Store never goes back to an earlier epoch of a generation. If etcd does, as
//     after a restoration from a backup, a placer that knows the last map writes it again; others leave
//     the lead while a live server reports a later map than etcd has.
//   - While etcd is unavailable, the last map stays in use. With Options.File it also
//     survives a restart without etcd. Nothing moves meanwhile.
//
// The types are safe for concurrent use.
package etcdmap
