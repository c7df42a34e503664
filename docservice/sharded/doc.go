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
//     MaxMoveWait has passed.
//   - A column that is slow or dead affects only its own ids: they are passed with an error,
//     the others with their documents.
//   - If the placement cannot be read, the last one stays in use.
//
// A call to a column that leaves the placement can complete within RemovedPoolTime; later
// it fails and is retried on the new holder.
//
// # Hedging
//
// The pools retry and hedge calls, each within its share of calls (PoolOptions.RetryRatio):
// the share of all calls of the client is no larger.
package sharded
