// Package wal is an append-only log of checked records: the part of a store
// that makes a write survive before the store has sorted it into a table.
//
// # Use
//
// One goroutine appends, and after a restart Replay hands the records back:
//
//	w, err := wal.Create("000001.wal", 1, nil)
//	err = w.Append(sequence, key, value) // survives kill -9
//	err = w.Sync()                       // survives loss of power, too
//	err = w.Close()
//
//	result, err := wal.Replay("000001.wal", nil, func(sequence uint64, payload []byte) error {
//		...
//	})
//
// A log is written once, from Create to Close or to the death of the process.
// It is never opened for appending again: what follows goes into the next log, under
// the next number. The file of a log that nobody needs any more may become that of
// a later one, in the same process: Retire erases the header and keeps the rest,
// Spare.Create begins the next log over it.
//
// # Concurrency
//
// Append is for one goroutine at a time. Sync may run beside Append and beside
// other Syncs, and so may Size and Fits. Replay may read a log that is being
// written by this or another process.
//
// # Layout
//
// A header, and behind it records without gaps. Numbers are little-endian.
//
//	header, 64 bytes
//	+-------+-----+---------+------+--------+---------+--------+----------+
//	| magic | crc | version | kind | number | created | log id | reserved |
//	|   8   |  4  |    2    |  2   |   8    |    8    |   16   |    16    |
//	+-------+-----+---------+------+--------+---------+--------+----------+
//
//	record, 20 bytes and the payload
//	+-----+--------+------+----------+----------+------------------+
//	| crc | length | type | reserved | sequence | payload          |
//	|  4  |   4    |  1   |    3     |    8     | length           |
//	+-----+--------+------+----------+----------+------------------+
//
// Type 1 is a record of the caller. Type 2 is a sync mark: "every byte of this
// log below the offset in my payload is durable". Type 0 is a record that was
// never written: space that was allocated and not used reads as zeros, or as what a
// log before this one in the same file left there.
//
// A CRC-32C covers every byte behind it, to the end of the header or record.
// Those of records go over the log's random id and Options.Owner first, so that the
// bytes of another log, wherever they may come from, are no records of this one: they
// have the right CRC if the CRCs of the two ids are equal, one time in four billion.
// docs/format/wal.md has all of it, byte for byte.
//
// # Recovery
//
// A log ends at its first record that is not valid. What that means depends on
// how far the log was synced:
//
//   - Above the synced offset it is the torn tail. A process that dies leaves
//     its last record half copied; a power cut keeps any subset of the pages
//     that were not synced. Nothing there was promised to survive, and Replay
//     returns what comes before it, always a prefix of what was appended.
//   - Below the synced offset it is damage to bytes that were durable once:
//     Replay returns a *CorruptionError.
//
// Sync appends a mark once the bytes before it are durable. Replay goes
// on behind the first bad record in search of marks (by the sixteen bytes that
// all marks have in common, checked by CRC and log id), up to the end of the
// file. The mark was written after the bytes it tells of were safe, so it
// proves damage whichever pages around it were lost.
//
// The mark of the last Sync is not synced itself; the next Sync does that. If
// power is lost and the disk damages what that last Sync wrote and loses its mark,
// then this log alone looks torn. A store notices by the sequence numbers, when
// a later log or its manifest goes on above the gap.
//
// A reader beside a live writer takes the first bad record for the end. If it
// sees a mark that covers that record, it reads the record once more: a record
// that the writer has finished since is valid by then.
//
// # Files used again
//
// Whatever pages of a file used again a loss of power takes back to what they were, they
// hold the end of the log or records of this log. For that
//
//   - the header is zeros, durably, before the file may get the name of another
//     log. So under that name it has the header of that log or none, and never one of
//     another number, which would be damage. What ends in a zero where a log id never
//     does was not written to its end: there is no log, whatever lies behind it;
//   - records are bound to the id of their log;
//   - a log with a sync mark is not used again. Where the header is lost marks are
//     taken at their word for the log that they belong to, and one left behind
//     would vouch for what is gone.
//
// The owner takes the log's name away before Retire, and gives the file the name of the
// next log when Spare.Create has written its header. Whoever has replayed a log
// beside its writer looks for its name then: if it is gone, the log was obsolete
// and what he read may be another's.
//
// # Limits
//
// A payload has at most MaxPayloadBytes. A log has the capacity it was created
// with, because its blocks are allocated at the start; Append answers ErrFull
// when a record does not fit, and CapacityFor tells what a single large record
// needs. Each Append leaves room for the marks of the Syncs to come. Sequence
// numbers start at 1 and rise strictly; whether they may skip is the caller's.
package wal
