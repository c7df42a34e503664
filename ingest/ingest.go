package ingest

import (
	"context"
	"errors"
	"time"
)

// Record is a document or a delete.
type Record struct {
	// ID is the id of the document. If it is empty, the id is a field of Document, which is
	// JSON.
	ID []byte
	// Document is the content, or nil with Delete.
	Document []byte
	Delete   bool
	Expires  time.Time // zero: never
	// Problem is set if the record is invalid. Document is then the text that was read, for
	// the file of bad records.
	Problem error
}

// Batch is a series of consecutive records. The records belong to the caller, which may replace
// their fields; the bytes of their ids and documents must not be changed. The functions do not
// depend on the fields of Records.
type Batch struct {
	Records []Record
	// Source is the index of the source among several that are read as one; else 0.
	Source int
	// Bytes is the size of the records in the source, for the progress; 0: unknown.
	Bytes int64
	// Ends says that the source ends some time: stopping behind these records is an
	// interruption. Without it the source may have new records for ever.
	Ends bool
	// Oldest is the time of the oldest record at its origin: of a message its time stamp, of a
	// change the commit, of a whole file the last modification; zero: not known.
	Oldest time.Time
	// FlushBefore says that earlier records must be durable before these are appended: the
	// source could not find them again for a shard without a cursor.
	FlushBefore bool
	// AppendCursor appends the cursor after Records[i] to dst, at most queue.MaxCursorBytes.
	// It appends nothing if the source cannot be read again, as a pipe.
	AppendCursor func(dst []byte, i int) []byte
	// Included reports whether the position of a cursor, decoded by Positions, is after
	// Records[i]: a shard with that cursor has the record.
	Included func(p Position, i int) bool
	// Place describes the place of Records[i] for messages: jobs.ndjson:17.
	Place func(i int) string
	// Release, if it is not nil, returns the memory of the batch and its records to the
	// source. The caller may call it once, and does not use the batch afterwards.
	Release func()
}

// Position is a decoded cursor of a source. Only the source interprets it. Its String, if it
// has one, describes it for messages.
type Position any

// Opener opens a source at a position.
type Opener interface {
	// Open starts reading behind a cursor; empty: at the start. The error says why the
	// source cannot continue there, for example because it has discarded records.
	Open(ctx context.Context, cursor []byte) (Source, error)
	// Position decodes a cursor.
	Position(cursor []byte) (Position, error)
	// Earliest returns a cursor at or before each of the cursors; an empty one is the start.
	Earliest(cursors [][]byte) ([]byte, error)
	// Ends reports whether the source ends, before its first batch: see Batch.Ends.
	Ends() bool
}

// Interleaved is an Opener of a source with several sequences of records, such as partitions.
// When they are read again, their records may arrive in another order. A cursor has a position
// in each sequence, so neither of two cursors need be the later one.
type Interleaved interface {
	Opener
	// Combine returns the cursor of a program that has all records before a and all before
	// b. within: these are the records before a.
	Combine(a, b []byte) (cursor []byte, within bool, err error)
}

// ErrUnread is matched by the error of a source that ended, and has records that it cannot read
// any more, because they were added before its cursor.
var ErrUnread = errors.New("not all records were read")

// Source is an open source. Durable and Lag may be called while Next runs; apart from that a
// Source is not safe for concurrent use.
type Source interface {
	// Next returns the next records, at least one. It waits for records until ctx ends, and
	// returns io.EOF after the last record of a source that ends, or an error that matches
	// ErrUnread. Any other error is final: continuing behind it could leave out records.
	Next(ctx context.Context) (*Batch, error)
	// Durable reports that all records up to a cursor are durable.
	Durable(cursor []byte)
	// Lag returns the number of records or bytes, as the unit says, that are known to wait
	// in the source; unit is empty if that is unknown.
	Lag() (n int64, unit string)
	Close() error
}
