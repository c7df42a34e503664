// Package sharded is the client of a collection whose shards are placed on columns of
// machines (package docservice/placement).
//
//	client, err := sharded.NewClient(source, "jobs", &sharded.Options{
//		Pool: func(column string) (*boxcarrpc.Pool, error) { ... },
//	})
//	defer client.Close()
//	document, err := client.Get(ctx, nil, "job-17")
//
// # Routing
//
// The client has a Pool for each column and follows the placement. Get asks the column that
// holds the shard of the id. GetMany sends one call to each column, all at once, and
// passes the answers in the order of the ids.
//
// # Guarantees
//
//   - ErrNotFound comes only from a server that serves the shard and has read its queue to
//     the end. A server that does not serve the shard answers ErrMoved, whatever the client
//     believes; the client reads the placement again and asks the column that does, until
//     MaxMoveWait has passed. While the servers of the new holder are not ready, the previous
//     one is asked.
//   - A column that is slow or dead affects only its own ids: they are passed with an error,
//     the others with their documents. If none of its servers can be reached, the error comes
//     at once (see boxcarrpc.Pool.Call), and the placement is not read again.
//   - While a row of a column lacks a shard, calls ask the other rows, without the retry
//     budget of the pools.
//   - If the placement cannot be read, the last one stays in use.
//
// A call to a column that leaves the placement can complete within RemovedPoolTime; later
// it fails and is retried on the new holder.
//
// # Hedging
//
// A sub-batch that has no answer after the 95th percentile of the recent times of its size
// class (1, 2-3, 4-7, ... ids) is also sent to another server of the column; the first answer
// counts. One budget bounds the hedges of all columns: one for 20 sub-batches, counted when
// they are queued, and at most 16 saved up. A column with one server has no hedges, and Get
// has none. The pools retry calls within their own share (PoolOptions.RetryRatio).
package sharded
