package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"docstore/cmd/internal/cli"
	"docstore/ingest"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

// destination is the queue that append writes.
type destination interface {
	ingest.Writer
	Seal() error
	Close() error
	// Resume returns the cursor behind which the input is read.
	Resume(opener ingest.Opener) ([]byte, error)
	// Ends returns the address after the last entry of each shard; any goroutine may call it.
	Ends() []queue.Address
}

// openQueue opens the queue, and creates it if necessary. synced is called with the duration of
// each fsync.
func (o *appendOptions) openQueue(env *cli.Env, synced func(time.Duration)) (destination, error) {
	layout, err := shard.Read(vfs.OS, o.queueDir)
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
			Codec: o.codec, SegmentBytes: int64(o.segmentSize), SegmentAge: o.segmentAge, Synced: synced, Logger: env.Log,
		})
		if err != nil {
			return nil, cannotOpen(o.queueDir, err)
		}
		return &oneQueue{w}, nil
	}
	w, err := shardset.Open(o.queueDir, &shardset.Options{
		Layout: layout, Codec: o.codec, SegmentBytes: int64(o.segmentSize), SegmentAge: o.segmentAge, Synced: synced, Logger: env.Log,
	})
	if err != nil {
		return nil, cannotOpen(o.queueDir, err)
	}
	return &dividedQueue{w}, nil
}

// oneQueue is a queue without shards.
type oneQueue struct{ *queue.Writer }

func (q *oneQueue) Put(r queue.Record) error {
	_, err := q.Writer.Put(r)
	return err
}

func (q *oneQueue) Resume(ingest.Opener) ([]byte, error)    { return q.Cursor(), nil }
func (q *oneQueue) Has(*ingest.Batch, int, []byte) bool     { return false }
func (q *oneQueue) InputEnded()                             {}
func (q *oneQueue) Ends() []queue.Address                   { return []queue.Address{q.End()} }
func (q *oneQueue) Resumable(durable []byte) (start []byte) { return durable }

// dividedQueue is a queue with shards.
type dividedQueue struct{ *shardset.Writer }

func (q *dividedQueue) Resumable([]byte) (start []byte) { return q.Checkpoint() }
