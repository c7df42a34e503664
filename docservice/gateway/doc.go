// Package gateway lets each server of a sharded collection answer requests for all of it: over
// HTTP and gRPC, whose clients do not know the placement.
//
//	g := gateway.New(service)
//	g.Add("jobs", client) // a sharded.Client
//	...                   // use g.Handle instead of service.Handle for these listeners
//
// A request is answered by this server as far as it holds the shards. The rest is passed on
// over Boxcar to servers of the columns that hold them: one call for each column, all at once.
//
// # Guarantees
//
//   - A request is passed on once. Servers answer Boxcar requests by Service.Handle, which
//     passes on nothing.
//   - Answers are those of the holders, in their stored form if the request accepts it, in
//     the order of the ids. "Not found" comes only from a server that serves the shard.
//   - At most MaxForwards requests are passed on at the same time. Others fail with
//     CodeResourceExhausted; those that this server can answer are not affected.
//   - A request that is passed on reserves no memory while it waits: the servers that it waits
//     for could wait for that memory. PoolOptions.BufferBytes limits the answers that arrive.
//   - A column that does not answer within ColumnTimeout makes its ids unavailable, and no
//     others; one without a reachable server does at once.
//
// A Gateway is safe for concurrent use.
package gateway
