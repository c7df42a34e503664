package shard

import (
	"fmt"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

func TestLayout(t *testing.T) {
	for _, l := range []Layout{{}, {Shards: -1}, {Shards: 1, Seed: 1}, {Shards: 3}, {Shards: 65}, {Shards: MaxShards * 2}} {
		require.Error(t, l.Check(), l)
	}
	l := Layout{Shards: 64, Seed: 7}
	require.NoError(t, l.Check())
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
	require.Equal(t, "jobs/shard-0007", l.Dir("jobs", 7))
	for i := range l.Shards {
		got, ok := l.ParsePrefix(l.Prefix(i))
		require.True(t, ok)
		require.Equal(t, i, got)
	}
	one := Layout{Shards: 1}
	got, ok := one.ParsePrefix(one.Prefix(0))
	require.True(t, ok)
	require.Zero(t, got)
	for _, l := range []Layout{l, one} {
		for _, prefix := range []string{"/", ".", "shard-", "shard-0064/", "shard--001/", "shard-+000/", "shard-00000/", "shard-0000", "shard-0000/../"} {
			_, ok := l.ParsePrefix(prefix)
			require.False(t, ok, prefix)
		}
	}
	require.NoError(t, one.Check())
	require.Zero(t, one.ShardString("doc"))
	require.Equal(t, "./jobs", one.Dir("./jobs", 0), "the directory itself")
}

// The shard of an id is part of the format: it must never change.
func TestShardsOfKnownIDs(t *testing.T) {
	l := Layout{Shards: 256, Seed: 0x9e3779b97f4a7c15}
	for id, want := range knownShards {
		require.Equal(t, want, l.ShardString(id), id)
	}
}

// The hash is XXH64, as of package xxhash, for ids of each length and any seed.
func TestSum(t *testing.T) {
	r := testseed.Rand(t)
	for n := range 200 {
		for range 20 {
			id, seed := make([]byte, n), r.Uint64()
			for i := range id {
				id[i] = byte(r.Uint64())
			}
			d := xxhash.NewWithSeed(seed)
			_, err := d.Write(id)
			require.NoError(t, err)
			require.Equal(t, d.Sum64(), sum(seed, id), "%d bytes", n)
		}
	}
}

func TestShardDoesNotAllocate(t *testing.T) {
	l := Layout{Shards: 64, Seed: 3}
	id := []byte("an id of a usual length, 36 bytes...")
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Shard(id) }))
}

func BenchmarkShard(b *testing.B) {
	l := Layout{Shards: 64, Seed: 3}
	for _, id := range []string{"job-1234567890", "an id of a usual length, 36 bytes..."} {
		b.Run(fmt.Sprintf("bytes=%d", len(id)), func(b *testing.B) {
			for b.Loop() {
				l.ShardString(id)
			}
		})
	}
}

var knownShards = map[string]int{"": 196, "a": 154, "job-1234567": 87, "a longer id than thirty-two bytes, with stripes": 225}
