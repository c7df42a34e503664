// Package wal is an append-only log of checksummed records: it makes a write
// durable before the store sorts it into a table.
//
// # Use
//
// One goroutine appends. After a restart, Replay reads the records back:
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
// A log is written once, from Create to Close or to the death of the process. It is
// never opened for appending again: later records go into the next log, under the
// next number and in a new file.
//
// # Concurrency
//
// Append must not be called concurrently with itself. Sync, Size and Fits may be called
// concurrently with everything. Replay may read a log that this or another process is
// writing.
//
// # Layout
//
// A header, followed by records without gaps. Numbers are little-endian.
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
// Type 1 is a record of the caller. Type 2 is a sync mark: every byte of this log below
// the offset in its payload is durable. Type 0 is space without a record: allocated and
// unused space reads as zeros.
//
// A CRC-32C covers all bytes that follow it in the header or record. The CRC of a
// record starts with the log's random id and Options.Owner, so the bytes of another log
// fail the check: they pass only if the CRCs of both ids are equal, with probability
// 2^-32. docs/format/wal.md describes every byte.
//
// # Recovery
//
// A log ends at its first invalid record. The meaning of that record depends on the
// synced offset:
//
//   - Above the synced offset it is the torn tail. A process that dies can leave a
//     partly copied last record; a power cut keeps any subset of the unsynced pages.
//     No byte there was promised to survive. Replay returns the records before it,
//     which are always a prefix of the appended records.
//   - Below the synced offset it is damage to durable bytes: Replay returns a
//     *CorruptionError.
//
// Sync appends a mark once the bytes before it are durable. Replay searches for marks
// behind the first invalid record, up to the end of the file: it looks for the sixteen
// bytes that all marks share and checks CRC and log id. A mark is written after the
// bytes that it covers are durable, so it proves damage even if pages around it are
// lost.
//
// The mark of the last Sync is itself not synced; the next Sync does that. If a power
// cut loses this mark and the disk damages the bytes that this last Sync made durable,
// the log looks torn. The store detects the gap by sequence numbers, when a later log
// or the manifest continues above it.
//
// A reader concurrent with the writer takes the first invalid record for the end. If it
// then finds a mark that covers this record, it reads the record again: the writer has
// completed it in the meantime.
//
// docs/durability.md states the assumptions about disks and file systems.
//
// # Limits
//
// A payload has at most MaxPayloadBytes. The capacity of a log is fixed at Create, which
// allocates its blocks; Append returns ErrFull if a record does not fit, and CapacityFor
// returns the capacity that a single large record needs. Each Append reserves space for
// the marks of later Syncs. Sequence numbers start at 1 and increase strictly; gaps are
// up to the caller.
package wal
