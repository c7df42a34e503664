// Package lsm is an ordered key/value store on disk: a log-structured merge tree with
// the size-tiered merge rule of Indeed's docstore. All writes are sequential.
//
// # Use
//
//	db, err := lsm.Open(dir, nil)
//	err = db.Set(key, value)
//	value, err = db.Get(value[:0], key) // ErrNotFound if there is none
//	err = db.Close()
//
// Keys are ordered bytewise; the empty key is valid. Apply writes a Batch atomically.
// NewIter iterates over the keys in both directions, NewSnapshot keeps the current state
// readable, MultiGet looks up many keys in one state, Checkpoint creates a second store
// with hard links, Check reads and verifies everything, NewBuilder creates a store from
// sorted input. Options.ReadOnly opens a store while another process writes it;
// Options.Follow also allows to refresh to the newest flushed state.
//
// # Concurrency
//
// A DB and a Snapshot are safe for concurrent use; a Batch, an Iterator and a Builder are
// not. Reads take no lock and do not wait for writes, flushes or merges. Writes are
// serialized. Only one DB, of all processes, can have a directory open for writing; any
// number can read it.
//
// No slice of a mapped file leaves the package: Get copies to the caller's buffer, an
// iterator to its own.
//
// # How it works
//
//	          Set, Delete, Apply
//	                 |
//	      +----------+-----------+
//	      v                      v
//	0000000008.log           memtable --- full ---> memtable waiting
//	      |                                              | flush
//	      | replayed by Open                             v
//	      +--------------------------------> tables, newest first: 1 | 2 | 8 | 64
//	                                                     | merge
//	                                                     v
//	                                                one larger table
//
// A write goes to the log, then to the memtable, a hash table that keeps all versions of
// a key until it is flushed; it sorts its keys for flushes and iterators. A full memtable
// waits for a flush while the next one is filled. A flush writes the newest version of
// each key to a sorted file, with an index of its blocks and a Bloom filter, in one pass;
// separate goroutines build the filter and write the file. If the rule would merge this
// table at once with a few small ones, the flush writes the merged table. While a
// memtable waits, or many merges are due, writers are delayed slightly so that they need
// not stall; they stall before a second memtable waits. Stats reports both. A batch
// larger than a memtable gets its own memtable and log.
//
// A lookup searches the memtables and then the tables, newest first, skipping tables
// whose key range or filter excludes the key. The key is hashed once for all filters.
//
// planMerge chooses the tables to be merged, unless Options.MergeRule says otherwise: the
// newest tables whose total size is at least the size of the next one, in memtables,
// rounded. So n memtables are each written about log n times, and there are about log n
// tables. Merges run in the background, one at a time; a large one pauses for small ones,
// so that flushes do not wait and the number of tables does not grow. A tombstone is
// dropped when no older table can have its key. An entry that Options.Obsolete reports
// becomes a tombstone when it is written to a table.
//
// A large value is written like any other: it counts to its memtable's size, has its own
// block, and is copied by merges as often as the rule requires. A separate table for each
// value over an eighth of a memtable would count as a unit: eight of them would be merged
// like eight full memtables, and lookups would search more tables.
//
// A snapshot or iterator references a view, which is an immutable list of memtables and
// tables, and a sequence number. An obsolete file is unlinked at once, and unmapped when
// the last view that lists it is released.
//
// # Packages
//
//	kv        entries, the interfaces of their sources, merges of sorted sources
//	memtable  the layout of the newest writes in memory, and their order
//	table     the bytes of a table: writer, reader, index, filter
//
// These inner packages know neither each other, except kv, nor this one, which owns the
// list of memtables and tables (view), the log and its records, the manifest, the choice of
// merges and their schedule, and the budget. It must not know a byte of a block.
//
// # On disk
//
//	LOCK              locked by the writer, and names it
//	MANIFEST          the tables, the first log in use, the store's id
//	FILTERS           scores of filter pages; optional
//	0000000007.table  docs/format/table.md
//	0000000008.log    docs/format/wal.md; its records: docs/format/manifest.md
//	0000000009.spool  filter and index of a large table that is being written
//
// Every byte is covered by a CRC-32C or is zero. Open verifies the manifest and the index
// of each table. A block is verified when it is first read; all blocks of a new table that
// is the oldest before it replaces others. Memory and disks can damage them later, so ErrNotFound, iterators, merges, Check and GetVerified read verified copies
// of blocks. Only a value returned by Get or MultiGet can be damaged.
//
// A damaged file is a *CorruptionError. A table that cannot be read, because it was
// truncated or its disk fails, is a *ReadError. Both name the file. A file by a newer
// version of the package is ErrNewerVersion.
//
// # Recovery
//
// Options.Durability determines which crashes a write survives. Only logs are written
// without fsync: a table and its directory are synced before the manifest names it, and
// the manifest is replaced and synced before the files it makes obsolete are unlinked. It
// is replaced by a rename, so a crash at any point leaves the old or the new store, and
// orphans that the next Open removes. docs/durability.md lists the steps and the commit
// point of each operation.
//
// Open replays the logs into memtables. Writes have consecutive numbers, and replay stops
// at the first gap, within a log or between two: the recovered writes are always a prefix
// of all writes. Later records are dropped permanently, unless a later log was synced:
// then durable writes are missing, which is corruption.
//
// A log whose append or sync failed is never written or synced again, and no log follows
// it: the write that failed returns the error, and later writes wait until all memtables
// are flushed and the log is obsolete. Sync then makes the writes durable by the same
// flush. If a table cannot be written, because the disk is full, the flush is retried
// with delays of up to ten seconds; once no more memtables can wait, writes fail with the
// error of the flush, and succeed again after it is resolved. A merge does not begin
// unless the disk has space for it, a log and a flush. Reads work in all these cases.
//
// # Limits
//
// A key has at most MaxKeyBytes (64 KiB), a value MaxValueBytes (64 MiB), a batch
// MaxBatchBytes (256 MiB). Memory is used for up to two memtables, those pinned by
// snapshots and iterators, and twice Options.FilterBytes, for filters and tags; a Budget
// limits these for several stores together. Indexes are mapped; for each block, which has about 4 KiB, nine bytes
// are in memory, too. When there are 48 tables more than the rule leaves, flushes stop
// until merges have caught up.
package lsm
