package publish

import (
	"context"
	"errors"
	"sort"
	"time"

	"docstore/queue"
	"docstore/queue/bucket"
)

// maxFindManifests bounds the manifests that Find reads.
const maxFindManifests = 100

// Place is the manifest that published an entry first, or the increment of one.
type Place struct {
	Manifest uint64    // 0: the entry was not published
	Time     time.Time // of the manifest
	// Increment is that of the manifest; 0: the manifest has the entry.
	Increment uint64
	// Older: an earlier manifest may have been the first. Find has not read it.
	Older bool
}

// Find returns where the entry of a shard at a position was published. It reads the last 100
// manifests at most, and no files.
func Find(ctx context.Context, b bucket.Bucket, r Record, shard int, at queue.Position) (Place, error) {
	var place Place
	read := 0
	for m, err := range Manifests(ctx, b, r) {
		if err != nil {
			return Place{}, err
		}
		if shard >= len(m.Heads) {
			break
		}
		head := &m.Heads[shard]
		if head.Queue != at.Queue || head.Sealed < at.Next.Segment {
			if read == 0 && (head.Queue == at.Queue || head.Sealed == 0) {
				return findIncrement(ctx, b, r, m, shard, at)
			}
			break
		}
		if read == maxFindManifests {
			place.Older = true
			break
		}
		read++
		place.Manifest, place.Time = m.Number, m.Time
	}
	return place, nil
}

// findIncrement returns the increment of the newest manifest that has an entry.
func findIncrement(ctx context.Context, b bucket.Bucket, r Record, m *Manifest, shard int, at queue.Position) (Place, error) {
	newest, err := NewestIncrement(ctx, b, r.Head)
	if err != nil {
		return Place{}, err
	}
	reader := NewIncrementReader(b, m)
	var failed error
	first := 1 + sort.Search(int(newest), func(i int) bool {
		if failed != nil {
			return true
		}
		increment, err := reader.ReadHeader(ctx, r.Head, uint64(i)+1)
		if err != nil {
			failed = err
			return true
		}
		p := increment.Parts[shard]
		return p.Segment == at.Next.Segment && p.To > int64(at.Next.Block)
	})
	if failed != nil || first > int(newest) {
		return Place{}, errors.Join(failed, ctx.Err())
	}
	return Place{Manifest: m.Number, Time: m.Time, Increment: uint64(first)}, nil
}
