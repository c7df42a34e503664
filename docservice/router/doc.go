// Package router answers requests for documents: from the collections of this process, and for
// shards that it does not hold from the servers that do. With it each server of a sharded
// collection answers for all of it over HTTP and gRPC, whose clients do not know the placement.
//
//	r := router.New(service)
//	r.Add("jobs", client) // a sharded.Client
//	document, asStored, err := r.Get(ctx, []byte("jobs"), []byte("4711"), 0, nil)
//
// A request is answered by this process as far as it holds the shards. The rest is passed on
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
// A Router is safe for concurrent use. A request for a collection of this process takes no lock
// in it, except for a batch or a list.
package router
