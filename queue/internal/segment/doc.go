// Package segment reads and writes the files of a queue: it owns their bytes and their names.
//
//	+--------+------------+-------+-------+------+-------+------+--------+
//	| header | dictionary | block | block | mark | block | mark | footer |
//	+--------+------------+-------+-------+------+-------+------+--------+
//
//	header       the queue's id, the segment's number, the codec, and the digest
//	             of the footer of the previous segment
//	dictionary   the codec's compression dictionary; may be empty
//	block        a table of entries, ids and a cursor, with a checksum of the
//	             whole and the checksum of the previous block; then the documents,
//	             each compressed by itself, with its own checksum
//	commit mark  everything before it was durable at the source
//	footer       totals; the segment is complete
//
// A rewrite replaces the files of some segments. Its blocks are relocated: they state their
// original addresses, and a table of relocations before the footer finds them. docs/format
// describes every byte.
//
// # Files
//
//	[Open], [File]      one file: its header, footer, relocations, frames and documents
//	[Walk]              the frames in order, with their chain verified
//	[Fetch]             one document by its address
//	[Cache]             open files with reference counts; lookups take no lock
//	[List], [Listing]   the files in a directory, and which of them to read for a segment
//	[Create], [Writer]  a segment from its header to its footer
//	[PendingBlock]      a block that is filled and compressed
//	[CreateRewrite]     a rewrite
//
// Errors about bytes are *CorruptionError or ErrPartial: bytes that may still arrive. They match
// IsContent; all others are about the file system.
//
// # Bounds of the package
//
// It must not know the Writer and the Reader of package queue, positions, the head file, or
// why a rewrite is made: it states facts about one file, and its callers decide what they mean
// for the queue.
//
// A File may be read by many goroutines. A Walk, Writer, Rewrite and Window belong to one.
package segment
