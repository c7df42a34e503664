package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"docstore/cmd/internal/cli"
	"docstore/ingest"
	"docstore/queue"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

// destination is the queue that append writes.
type destination interface {
	put(r queue.Record) error
	Flush() error
	Seal() error
	Close() error
	// resume returns the cursor behind which the input is read.
	resume(opener ingest.Opener) ([]byte, error)
	// has reports whether a record that is read again is in the queue.
	has(b *ingest.Batch, i int) bool
	// inputEnded reports that the input was read to its end.
	inputEnded()
	// ends returns the address after the last entry of each shard; any goroutine may call it.
	ends() []queue.Address
	// resumable returns the cursor before which no later run reads, given that everything up
	// to a cursor is durable.
	resumable(durable []byte) []byte
}

// openQueue opens the queue, and creates it if necessary. synced is called with the duration of
// each fsync.
func (o *appendOptions) openQueue(env *cli.Env, synced func(time.Duration)) (destination, error) {
	layout, err := shard.Read(o.fs, o.queueDir)
	switch {
	case err != nil:
		return nil, err // it has advice
	case layout.Shards > 1 && o.shards > 0 && o.shards != layout.Shards:
		return nil, fmt.Errorf("--shards %d: the queue %s has %d shards, and the number never changes; omit --shards, or give another directory",
			o.shards, o.queueDir, layout.Shards)
	case layout.Shards == 1 && o.shards > 1:
		layout = shard.Layout{Shards: o.shards, Seed: rand.Uint64()}
	}
	if layout.Shards == 1 {
		w, err := queue.OpenWriter(o.queueDir, &queue.WriterOptions{
			FS: o.fs, Codec: o.codec, SegmentBytes: int64(o.segmentSize), SegmentAge: o.segmentAge, Synced: synced, Logger: env.Log,
		})
		if err != nil {
			return nil, cannotOpen(o.queueDir, err)
		}
		return &oneQueue{w}, nil
	}
	w, err := shardset.Open(o.queueDir, &shardset.Options{
		FS: o.fs, Layout: layout, Codec: o.codec, SegmentBytes: int64(o.segmentSize), SegmentAge: o.segmentAge, Synced: synced, Logger: env.Log,
	})
	if err != nil {
		return nil, cannotOpen(o.queueDir, err)
	}
	return &dividedQueue{w}, nil
}

// oneQueue is a queue without shards.
type oneQueue struct{ *queue.Writer }

func (q *oneQueue) put(r queue.Record) error {
	_, err := q.Put(r)
	return err
}

func (q *oneQueue) resume(ingest.Opener) ([]byte, error)    { return q.Cursor(), nil }
func (q *oneQueue) has(*ingest.Batch, int) bool             { return false }
func (q *oneQueue) inputEnded()                             {}
func (q *oneQueue) ends() []queue.Address                   { return []queue.Address{q.End()} }
func (q *oneQueue) resumable(durable []byte) (start []byte) { return durable }

// dividedQueue is a queue with shards.
type dividedQueue struct{ *shardset.Writer }

func (q *dividedQueue) put(r queue.Record) error                    { return q.Put(r) }
func (q *dividedQueue) resume(opener ingest.Opener) ([]byte, error) { return q.Resume(opener) }
func (q *dividedQueue) has(b *ingest.Batch, i int) bool             { return q.Has(b, i, b.Records[i].ID) }
func (q *dividedQueue) inputEnded()                                 { q.InputEnded() }
func (q *dividedQueue) ends() []queue.Address                       { return q.Ends() }
func (q *dividedQueue) resumable([]byte) (start []byte)             { return q.Checkpoint() }
