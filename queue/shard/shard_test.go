package shard

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLayout(t *testing.T) {
	for _, shards := range []int{-1, 0, 3, 65, MaxShards * 2} {
		_, err := NewLayout(shards, 1)
		require.Error(t, err, shards)
	}
	l, err := NewLayout(64, 7)
	require.NoError(t, err)
	counts := make([]int, l.Shards)
	for i := range 64_000 {
		id := fmt.Sprintf("doc-%d", i)
		s := l.ShardString(id)
		require.Equal(t, s, l.Shard([]byte(id)))
		counts[s]++
	}
	for s, n := range counts {
		require.InDelta(t, 1000, n, 200, s)
	}
	one, err := NewLayout(1, 7)
	require.NoError(t, err)
	require.Zero(t, one.ShardString("doc"))
	require.Zero(t, Layout{}.ShardString("doc"))
}

// The shard of an id is part of the format: it must never change.
func TestShardsOfKnownIDs(t *testing.T) {
	l := Layout{Shards: 256, Seed: 0x9e3779b97f4a7c15}
	for id, want := range knownShards {
		require.Equal(t, want, l.ShardString(id), id)
	}
}

func TestShardDoesNotAllocate(t *testing.T) {
	l := Layout{Shards: 64, Seed: 3}
	id := []byte("an id of a usual length, 36 bytes...")
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Shard(id) }))
}

func BenchmarkShard(b *testing.B) {
	l := Layout{Shards: 64, Seed: 3}
	id := []byte("an id of a usual length, 36 bytes...")
	for b.Loop() {
		l.Shard(id)
	}
}

var knownShards = map[string]int{"": 196, "a": 154, "job-1234567": 87, "a longer id than thirty-two bytes, with stripes": 225}
