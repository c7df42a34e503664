// Package placement decides which column of machines holds which shard of a collection.
//
// A column is a set of machines that hold the same shards. Plan compares the current
// assignment with the columns that exist and returns the moves that make it even:
//
//	moves, err := placement.Plan(shards, columns)
//
// # Guarantees
//
//   - No column exceeds its limit of bytes, before any move, between moves in the order
//     returned, and after them. A column that exceeds it at the beginning receives nothing
//     until it does not.
//   - If the limits leave room for one more of the heaviest shards in each column, no column
//     differs from its share by more than the heaviest shard after the moves.
//   - The moved bytes are at most those that any assignment with exact shares needs, besides
//     the shards that must leave a column because it is drained or full.
//   - Plan starts from the current assignment. An assignment that needs no move gets none,
//     and after its moves Plan returns no others.
//
// Hashing alone cannot place shards: with 256 shards on 10 columns the heaviest column of
// rendezvous hashing has about 1.5 times the mean (BenchmarkGrowth).
//
// # Moves
//
// A Map is the placement that servers and clients follow. Step returns the next Map: it
// starts the moves of a plan that an operator has applied, within limits, and completes a
// move when every live server of the receiving column is ready to serve the shard. Until
// then the previous holders serve it. A server or a column that dies changes nothing.
// Package etcdmap keeps the map in etcd.
//
// Plan, Propose and Step are pure functions and safe for concurrent use.
package placement
