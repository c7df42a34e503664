package publish

import (
	"context"
	"fmt"
	"time"

	"docstore/queue/bucket"
	"docstore/queue/shard"
)

// Division describes the announced manifest of a divided collection, for the placement of its
// shards.
type Division struct {
	Layout shard.Layout
	// Incarnation names the generation of the collection. A placement is valid for one: the
	// shards of another generation have other documents.
	Incarnation string
	Manifest    uint64  // number
	Bytes       []int64 // of the files of each shard
}

// ReadDivision reads the announced manifest of a collection. ErrRefused: nothing is announced,
// or the collection is not divided.
func ReadDivision(ctx context.Context, b bucket.Bucket, now func() time.Time) (Division, error) {
	log, err := OpenLog(ctx, b, now)
	if err != nil {
		return Division{}, err
	}
	record, err := log.Load(ctx)
	if err != nil {
		return Division{}, err
	}
	if record.Announced.Number == 0 {
		return Division{}, refused("the collection has no announced manifest: validate and announce one")
	}
	m, err := ReadManifest(ctx, b, record.Announced)
	if err != nil {
		return Division{}, err
	}
	return m.Division(record)
}

// Division describes a manifest of a record. ErrRefused: the collection is not divided.
func (m *Manifest) Division(r Record) (Division, error) {
	if m.Layout == nil {
		return Division{}, refused("manifest %d is of a collection that is not divided into shards: append with --shards to a new queue, and publish it with --new-generation", m.Number)
	}
	return Division{
		Layout: *m.Layout, Incarnation: fmt.Sprintf("%d-%s", r.Generation(m.Number), layoutName(*m.Layout)),
		Manifest: m.Number, Bytes: m.ShardBytes(),
	}, nil
}
