package updater

import (
	"fmt"
	"math/rand/v2"
	"time"

	"docstore/cmd/internal/cli"
	"docstore/internal/vfs"
	"docstore/queue/shard"
	"docstore/queue/shardset"
)

// openQueue opens the queue, and creates it if necessary. synced is called with the duration of
// each fsync.
func (o *appendOptions) openQueue(env *cli.Env, synced func(time.Duration)) (*shardset.Writer, error) {
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
	w, err := shardset.Open(o.queueDir, &shardset.Options{
		Layout: layout, Codec: o.codec, SegmentBytes: int64(o.segmentSize), SegmentAge: o.segmentAge, Synced: synced, Logger: env.Log,
	})
	if err != nil {
		return nil, cannotOpen(o.queueDir, err)
	}
	return w, nil
}
