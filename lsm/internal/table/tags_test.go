package table

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/bloom"
	"docstore/internal/testseed"
	"docstore/lsm/internal/kv"
)

// writeEntries writes a table and opens it.
func writeEntries(t testing.TB, env *Env, entries []kv.Entry) *Reader {
	t.Helper()
	w, err := Create(env, "table", "spool", 1, false)
	require.NoError(t, err)
	require.NoError(t, w.Add(entries, false))
	facts, err := w.Finish(1, uint64(len(entries)))
	require.NoError(t, err)
	r, err := Open(env, "table", facts)
	require.NoError(t, err)
	r.Ref()
	return r
}

// requireAnswers looks up all keys and their neighbours, one by one and together.
func requireAnswers(t testing.TB, r *Reader, entries []kv.Entry) {
	t.Helper()
	lookups := make([]Lookup, 0, 32)
	for i, e := range entries {
		value, answer, err := r.Get([]byte("is "), bloom.HashKey(e.Key), e.Key)
		require.NoError(t, err)
		if e.Tombstone {
			require.Equal(t, Deleted, answer)
		} else {
			require.Equal(t, Found, answer)
			require.Equal(t, "is "+string(e.Value), string(value))
		}
		above := append(bytes.Clone(e.Key), 0)
		value, answer, err = r.Get([]byte("is "), bloom.HashKey(above), above)
		require.NoError(t, err)
		require.Equal(t, None, answer)
		require.Equal(t, "is ", string(value))

		if lookups = append(lookups, Lookup{Key: e.Key, Hash: bloom.HashKey(e.Key)}); len(lookups) < cap(lookups) && i < len(entries)-1 {
			continue
		}
		lookups[0] = Lookup{Key: above, Hash: bloom.HashKey(above)}
		open := make([]uint8, len(lookups))
		for n := range open {
			open[n] = uint8(n)
		}
		require.Equal(t, []uint8{0}, r.GetMany(lookups, open, make([]uint8, 0, len(open))))
		for n, l := range lookups[1:] {
			require.NoError(t, l.Err)
			want := entries[i-len(lookups)+n+2]
			require.Equal(t, want.Tombstone, l.Entry.Tombstone)
			require.Equal(t, string(want.Value), string(l.Entry.Value))
		}
		lookups = lookups[:0]
	}
}

// TestTags looks up the keys of blocks of all kinds before and after their tags are filled
// in, and with tags that are wrong.
func TestTags(t *testing.T) {
	random := testseed.Rand(t)
	for name, entry := range map[string]func(i int) kv.Entry{
		"even": func(i int) kv.Entry {
			return kv.Entry{Key: fmt.Appendf(nil, "%08d", i), Value: fmt.Appendf(nil, "%096d", i)}
		},
		"short": func(i int) kv.Entry {
			return kv.Entry{Key: fmt.Appendf(nil, "%08d", i), Value: fmt.Appendf(nil, "%012d", i)}
		},
		"mixed": func(i int) kv.Entry {
			return kv.Entry{Key: fmt.Appendf(nil, "%d", 10_000+i*i), Value: bytes.Repeat([]byte("v"), random.IntN(60)), Tombstone: false}
		},
		"deleted": func(i int) kv.Entry {
			return kv.Entry{Key: fmt.Appendf(nil, "%08d", i), Tombstone: i%3 == 0}
		},
		"large": func(i int) kv.Entry {
			return kv.Entry{Key: fmt.Appendf(nil, "%08d", i), Value: bytes.Repeat([]byte("v"), 500*random.IntN(20))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var entries []kv.Entry
			for i := range 2000 {
				entries = append(entries, entry(i))
			}
			slices.SortFunc(entries, func(a, b kv.Entry) int { return bytes.Compare(a.Key, b.Key) })
			r := writeEntries(t, testEnv(), entries)
			defer r.Unref()
			requireAnswers(t, r, entries) // verified without tags
			r.AddTags()
			require.NotNil(t, r.tags.Load())
			requireAnswers(t, r, entries)
			tags, filled := r.tags.Load(), 0
			for i := range r.blocks {
				require.True(t, tags.claimed.has(i))
				if tags.filled.has(i) {
					filled++
				}
			}
			require.Greater(t, filled, r.blocks/2)
			requireAnswers(t, r, entries)

			replace := func(tag func() byte) { // but not the layouts
				for i := range r.blocks {
					of := tags.of(i)
					for at := range of[:len(of)-1] {
						of[at] = tag()
					}
				}
			}
			replace(func() byte { return byte(random.Uint32()) })
			requireAnswers(t, r, entries)
			same := tagOf(entries[7].Key)
			replace(func() byte { return same }) // more matches than are compared
			requireAnswers(t, r, entries)
		})
	}
}

// TestEqualTags compares equalTags with a loop.
func TestEqualTags(t *testing.T) {
	random := testseed.Rand(t)
	for range 10_000 {
		eight := order.AppendUint64(nil, random.Uint64())
		tag := byte(1 + random.IntN(255))
		for range random.IntN(4) {
			eight[random.IntN(8)] = tag ^ byte(random.IntN(2))
		}
		want := uint64(0)
		for i, b := range eight {
			if b == tag {
				want |= 0x80 << (8 * i)
			}
		}
		require.Equal(t, want, equalTags(eight, tag), "%x %x", eight, tag)
	}
}

// TestTagsInParallel fills in and reads tags concurrently, for the race detector.
func TestTagsInParallel(t *testing.T) {
	var entries []kv.Entry
	for i := range 1000 {
		entries = append(entries, kv.Entry{Key: fmt.Appendf(nil, "%08d", i), Value: fmt.Appendf(nil, "%096d", i)})
	}
	r := writeEntries(t, testEnv(), entries)
	defer r.Unref()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() { requireAnswers(t, r, entries) })
	}
	r.AddTags()
	for range 4 {
		readers.Go(func() { requireAnswers(t, r, entries) })
	}
	readers.Wait()
}

// TestTagLimit: a table without tags gets them when another one has released its own.
func TestTagLimit(t *testing.T) {
	var entries []kv.Entry
	for i := range 1000 {
		entries = append(entries, kv.Entry{Key: fmt.Appendf(nil, "%08d", i), Value: fmt.Appendf(nil, "%012d", i)})
	}
	env := testEnv()
	var counted int64
	env.CountIndex = func(bytes int64) { counted += bytes }
	env.Tags.Bytes = 2000
	first := writeEntries(t, env, entries)
	index := counted
	first.AddTags()
	require.NotNil(t, first.tags.Load())
	require.Greater(t, counted, index+1000)
	first.AddTags() // it has tags
	second, err := Open(env, "table", first.Facts)
	require.NoError(t, err)
	second.Ref()
	second.AddTags()
	require.Nil(t, second.tags.Load(), "the limit is exceeded")
	requireAnswers(t, second, entries)
	first.Unref()
	second.AddTags()
	require.NotNil(t, second.tags.Load())
	requireAnswers(t, second, entries)
	second.Unref()
	require.Zero(t, counted)
	require.Zero(t, env.Tags.used.Load())
}
