// Package ingest brings records into queues: an Appender moves them from a Source to a
// shardset.Writer.
//
//	to := &ingest.CatchUp{Writer: writer}
//	cursor, err := to.Resume(opener)
//	source, err := opener.Open(ctx, cursor)
//	appender := ingest.NewAppender(source, ends, to, ingest.Options{Parsing: parsing, FlushInterval: time.Second})
//	err = appender.Run(ctx)
//
// Subpackages implement Source: files reads files and object stores in the formats of records and
// parquet; kafka, nats and postgres read servers, the first two with the formats of envelope; merged
// reads several sources as one. Package sources opens the source that a URL names. Sources write
// no queue, and sources and Appender know no command line: they take options as data, and
// report by errors, callbacks and a Logger.
//
// # Exactly once
//
// A cursor is a position in a source. The Appender stores the cursor after a record in the block of
// the queue that holds the record, so records and cursor become durable together, and reading
// continues behind the last durable record after any crash. A source keeps no other state about
// progress; Durable only lets the other system discard records that are not needed any more.
//
// Each shard of a collection has a cursor, and the cursors differ after a crash. CatchUp starts
// reading at Earliest; Included says which records a shard already has. While it catches up with
// a source of several sequences (Interleaved), a shard stores cursors that also include the
// records that it has and that were not reached yet.
//
// # Whole states
//
// Replace makes a collection equal to a source that delivers its whole state: it appends what
// differs from the digests of the live documents, and deletes the documents that the source lacks.
//
// # Invalid records
//
// An invalid record ends Run, or is skipped. DeadLetters keeps skipped records in a file of lines:
//
//	{"time":"2026-11-26T20:00:00Z","at":"jobs.ndjson:17","problem":"not JSON: ...","bytes":4,"text":"oops"}
package ingest
