// Package postgres reads a table of PostgreSQL and follows its changes, or reads the rows of a
// query. It implements the interface of package ingest.
//
//	options, err := postgres.ParseURL("postgres://reader@db/shop?table=public.products")
//	opener, err := postgres.New(options)
//	src, err := opener.Open(ctx, writer.Cursor())
//
// It needs PostgreSQL 13 or later with wal_level = logical, and a user with the attribute
// REPLICATION and the right to read the table. The owner of the table makes the publication
// before the first start, unless the user owns the table.
//
// # Documents
//
// A row is a JSON object with the columns in the order of the table; package pgjson says how
// values are converted. Generated columns are left out, because PostgreSQL does not send them
// with changes.
//
// The id is the primary key: its text form in PostgreSQL, a timestamp as in the document, and
// the bytes of a bytea. The values of a key of several columns are joined by commas, with a
// backslash before each comma and backslash of a value: acme,17. A row that cannot be a
// document has Record.Problem set.
//
// # Queries
//
// The rows of a query are read in the order of its key, once. A source that continues reads only the
// rows behind the last key: it does not see other rows that were inserted, updated or deleted, and
// logs that. A query with another text is refused.
//
// # Rows, then changes
//
// The first Open makes a publication and a replication slot. The rows are read as of the first
// position of the slot, in the order of the primary key; the changes since then follow. Each
// transaction arrives after its commit. An update of the key is a delete and a document.
//
//	begin ---- rows by key ----> changes from the slot's first position on ---->
//	              ^ |                      ^ |
//	              | v                      | v
//	        cursor with a key       cursor (LSN of a commit, changes in it)
//
// After an interruption in the rows, the rest is read as it is then, behind the last key, and
// the changes follow from the same position of the slot. So the copy becomes equal to the
// table: a change since that position is applied again to a row that may already contain it,
// and a row that was read before a change, or missed because its key moved, gets the change.
// Until then a document may go back to an earlier version.
//
// Each record of a change has its cursor, so a transaction of any size is read
// in bounded batches, and continues in its middle after a crash: the server sends it again, and
// the changes that the queue has are skipped.
//
// The position confirmed to the server is never ahead of the queue. So a slot that begins
// behind the queue's cursor was made again or used by another reader, and reading stops with an
// error. Other such stops are another database cluster, a timeline that lacks changes of the
// queue, a slot that lost its log, a table or publication that was made again or changed, a
// changed primary key, and TRUNCATE, which names no keys. The remedy is another queue: it
// reads the whole table.
//
// A server that was restored from an older copy may be written past the queue's cursor before it
// is read. So a cursor identifies the last transaction before it that changed the table, by the
// position, time and id. The server sends that transaction first when reading continues, and
// reading stops if it is not there. Without such a transaction, that is after the rows, there is
// nothing to compare: rows that were read after an interruption and then lost remain in the queue.
//
// PostgreSQL does not say which rows come or go with a partition. So a cursor has a fingerprint of the
// partitions of the table, which is compared at Open and every 2 seconds. Reading stops if one was
// detached, truncated or rewritten, or attached with rows. New partitions that were made empty are
// accepted, unless rows of the transaction that made one are in it. To see that, the user may need the
// right to read the partition.
//
// A statement that rewrites the rows, or adds, drops or converts a column, sends no rows either.
// Documents stay as they are until their rows change; the source logs a warning.
//
// While the table does not change, the log of other tables must not be held. Every 16 MiB of it,
// but at most every 10 seconds, a delete of HeartbeatID moves the cursor in the queue, and with it
// the confirmed position.
//
// A server that shuts down waits for the readers of slots to confirm its log, but first ends all
// other connections. The source then closes the one that receives changes.
//
// PostgreSQL does not send a large (TOASTed) value with an update that leaves it unchanged. It
// is taken from the old row with REPLICA IDENTITY FULL. Otherwise the row is read from the
// table as it is then; changes since then follow.
//
// Columns may be added, dropped, renamed and converted, except for those of the primary key. A
// document has the columns that the table had at the change.
//
// When the connection is lost, Next waits until the server is back. The same checks are made
// then as at Open.
//
// # Limits
//
//	message of the server   64 MiB: a row, or with replica identity full two of them
//	records before Next     1 MiB, and a batch of 256 KiB or a single larger row
//	rows read again for     256, as large as they are
//	TOASTed values
//	key in a cursor         1,900 bytes; an id has at most queue.MaxIDBytes
//	connections             3 to the server, 2 of them after the rows
package postgres
