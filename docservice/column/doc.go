// Package column is the part of a server that holds the shards of its column (package
// docservice/placement): it follows the placement, opens and removes shards, claims a row,
// reports the state of the server, and places shards while it is elected.
//
//	c, err := column.Open(column.Options{Store: store, Service: service, Column: "a", ...})
//	...             // serve the service
//	c.Leave()       // before the shutdown: clients and the placer forget the server
//	defer c.Close()
//
// # Life of a shard on a server
//
//	the map names the column     the shard is ready          the map no longer
//	as Column or Next                                        names the column
//	-----------|-----------------------|---------------------------|-------------|-----
//	  MOVED    |  fetched and indexed  |       served              |   served    | removed: MOVED
//	           |  MOVED or unavailable |                           |  KeepMoved  |
//
// Guarantees at each step:
//
//   - A shard is served from the moment at which it is ready, until it is removed, whatever
//     the epoch of the map. It follows its manifests all the time. "Not found" comes only from
//     a shard that is served.
//   - Before it is ready, its ids are unavailable if the map names the column as the holder:
//     the other servers of the column have them. If the shard is moving to the column, they
//     are MOVED: the previous column has them.
//   - The placement completes a move when each live server of the receiving column reports
//     the shard as ready, which it does after it has begun to serve it. So there is no moment
//     at which no column serves the shard.
//   - A shard that has moved away stays served, with its files, for KeepMoved. Moving it back
//     in that time fetches only new files. If the data directory is above PressurePercent of
//     its limit, the files of moved shards are removed earlier, the oldest move first. The time
//     of a move is not kept on disk: after a restart KeepMoved begins again.
//   - A shard that no column has in the map is never removed.
//
// # Static stability
//
// The last map and the name of the column are kept in files: a server that starts while etcd
// is away serves what it has. Without etcd nothing moves, is removed, or changes its row. If
// etcd has lost the map, a server that has the latest one creates it again.
//
// # Rows
//
// A server claims a row of its zone and gets its last row back after a restart, at once also if
// it was killed (package boxcarrpc/discovery/etcd). Serving does not depend on the row. Clients
// see the server when it is ready: all shards that the map assigned to its column until then are
// served. A server that leaves keeps its shards and follows no more changes of the map.
//
// # Column auto
//
// A new server with Column Auto joins the column with the fewest rows that is not drained,
// and stays there: the file COLUMN has its name. Servers choose one at a time. A column begins
// to exist when its first server is started with its name.
//
// # Files
//
//	COLUMN            the name of the column
//	TOKEN             shows etcd that the process which claimed the row has ended
//	placement.json    the last map
//	shard-0007/       a shard (package docservice/follow)
//
// # Out of scope
//
// A generation with another number of shards needs servers with another data directory: a
// server that sees its placement keeps its shards, and is not ready.
//
// A Column is safe for concurrent use. One goroutine opens and removes shards.
package column
