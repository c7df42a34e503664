// Package shardset writes a collection: a set of one or more shards, each a queue. An entry is
// in the shard of its id.
//
//	w, err := shardset.Open(dir, &shardset.Options{Layout: layout}) // or nil: the layout of dir
//	err = w.Put(queue.Record{ID: id, Document: document, Cursor: cursor})
//	err = w.Flush() // from here on it is durable
//	err = w.Close()
//
// To read one, open the queue of each shard: shard.Read, Layout.Dir, queue.OpenReader.
//
// # Files
//
// The directory of one shard is that of its queue, with the files and bytes of queue.Writer. The
// sections below concern several shards, whose directory has
//
//	LAYOUT        number of shards and seed; see package shard
//	LOCK          held by the Writer
//	CURSOR        the last checkpoint
//	DICTIONARY    the compression dictionary of all shards
//	shard-0000/   a queue
//	shard-0001/   ...
//
// CURSOR and DICTIONARY are a line of JSON and a line with its CRC-32C in hex.
//
// # Exactly once
//
// A record's cursor is stored in the block of its shard, as in any queue. After a crash the
// shards have different cursors: Cursors. The input is read again from the earliest of them, and
// records that are in their shard are not put again; ingest.CatchUp does both.
//
// The cursor of a shard without new records does not advance. A checkpoint bounds the records
// that are read again: it states a cursor and the end of each shard when all records up to
// the cursor, and no others, were in the queue. The cursor of a shard that still has this end
// is that of the checkpoint. A shard with more entries has a later cursor in its last block,
// and one with fewer, because it was truncated or restored, an earlier one. So a lost or old
// checkpoint costs time and never a record. A Writer makes a checkpoint about every 10
// seconds, after Seal and when it closes, but none before the reading has passed the cursors
// of all shards (Resume, CaughtUp). A Writer that begins another input makes one without a cursor.
//
// # Dictionary
//
// The shards share one compression dictionary, trained from documents of all of them, because
// small shards would each have to train one. So a dictionary may contain a piece of a document
// of any shard. To erase documents, compact all shards with EraseDead: it replaces the shared
// dictionary in each segment, which rewrites each segment that was written since the last
// erasure. Then call RemoveDictionary: the next Writer trains another one.
//
// # Limits
//
//	shards               1,024
//	blocks being filled  16 MiB of ids and documents in all, 256 KiB for each shard
//	pending documents    8 MiB in all, then Put waits
//	sample               1 MiB, and another while a dictionary is trained
//	shard                two descriptors, one goroutine, about 10 KiB without open block
//
// Blocks take up to twice their size, with the compressed form.
package shardset
