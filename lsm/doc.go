// Package lsm is an ordered key/value store on disk that is written sequentially
// only: a log-structured merge tree with the size-tiered rule of Indeed's docstore.
//
// # Use
//
//	db, err := lsm.Open(dir, nil)
//	err = db.Set(key, value)
//	value, err = db.Get(value[:0], key) // ErrNotFound if there is none
//	err = db.Close()
//
// Keys are ordered by their bytes; the empty key is one like any other. Apply
// writes a Batch, all of it or nothing. NewIter goes through the keys forwards and
// backwards, NewSnapshot keeps the present state readable, MultiGet looks up many
// keys in one state, Checkpoint makes a store of its own by hard links, Check reads
// and verifies everything, NewBuilder makes a store of sorted input. Options.ReadOnly
// opens a store beside its writer, Options.Follow goes on seeing what it flushes.
//
// # Concurrency
//
// A DB and a Snapshot may be used by any number of goroutines; a Batch, an Iterator
// and a Builder by one at a time. Reading takes no lock and is never held up by
// writes, flushes or merges. Writers take turns. One DB at a time may have a
// directory open for writing, of all processes; any number may read it.
//
// No slice of a mapped file leaves the package: Get copies to its caller's
// buffer, an iterator to its own.
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
// A write goes to the log, then to the memtable, a hash table that keeps every
// version of a key until it is flushed, and sorts its keys then and for iterators.
// A full memtable waits while the next one is filled, and becomes a table: a sorted
// file of the newest version of each key, with an index of its blocks and a Bloom
// filter, written in one pass. If the rule would merge it at once with a few small ones,
// it is written merged. While one waits, or many merges are due, writers are delayed a
// little so that they need not stop; they stop before a second one waits. Stats tells
// both. A batch larger than a memtable gets a memtable and a log of its size for
// itself.
//
// A look-up asks the memtables and then the tables, newest first, passing over
// tables whose range of keys or whose filter excludes the key. The key is hashed
// once for all filters.
//
// Which tables to merge says planMerge, unless Options.MergeRule says otherwise:
// those at the new end whose sum is at least the size of the next, in memtables,
// rounded. So n memtables are written about
// log n times, and there are about log n tables. Merges run in the background, one
// at a time; a large one pauses for small ones, so that neither flushes nor the
// number of tables wait for it. A tombstone goes when nothing older can hold its key.
//
// A large value is written like any other: it counts to its memtable's size, has a block
// of its own, and merges copy it as often as the rule says. To give each value over an
// eighth of a memtable a table of its own would make it a unit, however small: eight of
// them would be merged as eight full memtables are, and a table each would have to be
// asked by look-ups.
//
// A snapshot or iterator holds a view, an immutable list of memtables and tables,
// and a sequence number. A file that is not needed any more is unlinked at once, and
// unmapped when the last view that lists it is let go of.
//
// # On disk
//
//	LOCK              locked by the writer, and names it
//	MANIFEST          the tables, the first log that counts, the store's id
//	FILTERS           what look-ups have taught about filters; may be missing
//	0000000007.table  docs/format/table.md
//	0000000008.log    docs/format/wal.md; its records: docs/format/manifest.md
//	0000000003.spare  what was a log, until the next is written over it; one at most
//
// Every byte is under a CRC-32C, or zero. Open verifies the manifest and the index of each
// table. A block is verified when it is first read. Memory and disks may damage it after
// that, so ErrNotFound, iterators, merges, Check and GetVerified read verified copies of
// blocks. Only a value that Get or MultiGet finds may be damaged.
//
// A damaged file is a *CorruptionError. A table that cannot be read, because it was
// truncated or its disk fails, is a *ReadError. Both name the file. A file by a newer
// version of the package is ErrNewerVersion.
//
// # Recovery
//
// What a write survives says Options.Durability. Only logs go without fsync: a table
// and its directory are synced before the manifest names it, and the manifest is
// in place, synced, before anything it replaces is unlinked. It is replaced by a
// rename, so a crash at any point leaves the old store or the new one, and orphans
// that the next Open removes.
//
// Open replays the logs into memtables. Writes have consecutive numbers, and replay
// stops at the first gap, within a log or between two: what is recovered is always
// what was written up to some moment. What lies behind a gap is dropped for good,
// unless a log there was synced: then something is missing that was durable, which
// is corruption.
//
// A log that cannot be written or synced is never written or synced again, and no
// log follows on it: the write that met it fails, and the next ones wait until all
// that is in memory has become tables and the log is obsolete. What Sync could not
// make durable in a log it makes durable so. If a table cannot be written, because
// the disk is full, that is tried again after a while that doubles up to ten seconds;
// as soon as memtables cannot wait any more writes fail with the reason, and they go
// on by themselves once it has gone. A merge does not begin unless there is room for
// it beside a log and a flush. Reads go on in all these cases.
//
// # Limits
//
// A key has at most MaxKeyBytes (64 KiB), a value MaxValueBytes (64 MiB), a batch
// MaxBatchBytes (256 MiB). Memory is up to two memtables, those that snapshots and
// iterators hold on to, and Options.FilterBytes; a Budget bounds these for several
// stores together. Indexes are mapped, not read into memory. With 48
// tables over those that the rule leaves flushes stop until merges have caught up.
package lsm
