// Package table writes and reads tables: immutable sorted files of entries with an index
// and a Bloom filter. Create returns a Writer, Open a Reader for lookups and iterators,
// OpenSource a Source for one pass over all entries.
//
// It owns the bytes of a table (drawn in format.go and block.go, docs/format/table.md), the
// memory of its index, and the buffers with which it is written. It must not know which
// tables a store has, the names of files, memtables, logs and the budget.
//
// # Concurrency
//
// A Reader is safe for concurrent use until its last reference is removed. A Writer, a
// Source and an iterator are not. A Writer has two goroutines, which Finish or Abandon
// ends.
//
// # Damage
//
// Tables are mapped. Open verifies all but blocks and filter, the first read of a block
// verifies the block. Bytes of a mapping can change later, so what must be correct is read
// from verified copies: see blockCopy. A damaged table is a *CorruptionError, one that
// cannot be read a *ReadError, a newer one ErrNewerVersion.
//
// # Limits
//
// The buffers of a Writer take at most BufferBytes, or LastingBufferBytes, whatever the
// size of the table: index and filter wait in a spool. An open table takes 9 bytes of
// memory for each block of 4 KiB, and about a byte for each entry if it has tags.
package table
