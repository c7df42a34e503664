package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"docstore/internal/race"
	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"
	"docstore/queue/stored"

	"github.com/stretchr/testify/require"
)

// mixedQueue writes a rewrite of the first segments, originals, and an open segment, with
// blocks of several documents, long and raw documents, and deletes.
func mixedQueue(t *testing.T, random *rand.Rand, codec string) (*vfs.Mem, []queuetest.Item) {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.Codec, opts.BlockBytes = codec, 8<<10
	w := queuetest.OpenWriter(t, opts)
	var items []queuetest.Item
	write := func(count int) {
		for range count {
			it := queuetest.Item{ID: fmt.Sprint("id", random.IntN(60))}
			switch random.IntN(8) {
			case 0:
				it.Deleted = true
			case 1:
				it.Document = string(queuetest.RandomBytes(random, random.IntN(200)))
			case 2:
				it.Document = strings.Repeat(queuetest.Posting(len(items)), random.IntN(12))
			case 3:
				it.Expires = queuetest.Start.Add(1e12)
				fallthrough
			default:
				it.Document = queuetest.Posting(len(items))
			}
			it.Put(t, w)
			items = append(items, it)
		}
	}
	for range 4 {
		write(100)
		require.NoError(t, w.Seal())
	}
	report, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{FS: mem, MaxDead: 0.1, DeleteOriginals: true})
	require.NoError(t, err)
	require.NotZero(t, report.Rewrites)
	require.NotZero(t, report.Deleted)
	write(150)
	require.NoError(t, w.Seal())
	write(30)
	require.NoError(t, w.Flush())
	return mem, items
}

// TestStoredForAll compares batches with single fetches, and stored forms with
// DocumentFor.
func TestStoredForAll(t *testing.T) {
	for _, c := range codec.All() {
		t.Run(c.Name, func(t *testing.T) {
			random := testseed.Rand(t)
			mem, items := mixedQueue(t, random, c.Name)
			r := queuetest.OpenReader(t, mem)
			decoders := decodersOf(r)
			places := queuetest.PlacesOf(t, r)
			answered, others := map[bool]int{}, 0
			for range 60 {
				wanted := make([]queue.Wanted, random.IntN(3*queue.GroupDocuments))
				for i := range wanted {
					it := items[random.IntN(len(items))]
					wanted[i] = queue.Wanted{ID: []byte(it.ID), Address: it.At}
					switch random.IntN(12) {
					case 0:
						wanted[i].ID = []byte(items[random.IntN(len(items))].ID)
					case 1:
						wanted[i].Address.Index += uint16(random.IntN(1000))
					case 2:
						wanted[i].Address.Block += uint32(random.IntN(1 << 12))
					case 3:
						wanted[i].Address.Segment += queue.SegmentID(random.IntN(10))
					case 4:
						wanted[i].Address.Block = random.Uint32()
					}
					wanted[i].Place = randomPlace(random, places, it.At)
				}
				take := []codec.Set{codec.Built(), codec.Built() &^ (1 << c.ID), 0}[random.IntN(3)]
				next := 0
				all := r.StoredForAll([]byte("before"), wanted, take, func(i int, dst []byte, asStored bool, err error) ([]byte, bool) {
					require.Equal(t, next, i)
					next++
					id, at := wanted[i].ID, wanted[i].Address
					alone, aloneStored, aloneErr := r.StoredFor([]byte("before"), wanted[i], take)
					require.Equal(t, string(alone), string(dst))
					require.Equal(t, aloneStored, asStored)
					if errors.Is(err, queue.ErrOtherPlace) {
						require.ErrorIs(t, aloneErr, queue.ErrOtherPlace)
						require.NotEqual(t, places[at], wanted[i].Place)
						others++
						return dst, true
					}
					document, documentErr := r.DocumentFor(nil, id, at)
					for _, other := range []error{aloneErr, documentErr} {
						require.Equal(t, fmt.Sprint(other), fmt.Sprint(err))
					}
					answered[err == nil]++
					if err != nil {
						return dst, true
					}
					got := dst[len("before"):]
					if asStored {
						s, err := stored.Parse(got, id)
						require.NoError(t, err)
						require.Equal(t, at, s.Address)
						got, err = decoders.Decode(t.Context(), nil, s)
						require.NoError(t, err)
					}
					require.Equal(t, string(document), string(got))
					return dst[:len("before")], true
				})
				require.Equal(t, len(wanted), next)
				require.Equal(t, "before", string(all))
			}
			require.Greater(t, answered[true], 100)
			require.Greater(t, answered[false], 100)
			require.Greater(t, others, 20)
			require.Positive(t, requireCache(t, r), "every file was put back")
		})
	}
}

// TestStoredForAllEnds: fn ends a batch by returning false.
func TestStoredForAllEnds(t *testing.T) {
	r, _, items := mappedQueue(t, "none")
	var wanted []queue.Wanted
	for _, it := range items[:3*queue.GroupDocuments] {
		wanted = append(wanted, queue.Wanted{ID: []byte(it.ID), Address: it.At})
	}
	queuetest.RequireDocuments(t, r, items[:1]) // the segment's file is in the cache
	for _, enough := range []int{1, queue.GroupDocuments, queue.GroupDocuments + 1} {
		calls := 0
		r.StoredForAll(nil, wanted, codec.Built(), func(i int, dst []byte, asStored bool, err error) ([]byte, bool) {
			require.NoError(t, err)
			require.True(t, asStored)
			calls++
			return dst, i+1 < enough
		})
		require.Equal(t, enough, calls)
		require.Equal(t, 1, requireCache(t, r))
	}
}

// TestStoredForAllOfDamagedFiles: a mapped file that is cut or changed causes no crash
// and no wrong form.
func TestStoredForAllOfDamagedFiles(t *testing.T) {
	r, path, items := mappedQueue(t, "s2")
	places := queuetest.PlacesOf(t, r)
	var wanted []queue.Wanted
	for i, it := range items {
		wanted = append(wanted, queue.Wanted{ID: []byte(it.ID), Address: it.At})
		if i%2 == 0 {
			wanted[i].Place = places[it.At]
		}
	}
	requireHonestForms := func() (damaged int) {
		r.StoredForAll(nil, wanted, codec.Built(), func(i int, dst []byte, asStored bool, err error) ([]byte, bool) {
			if err != nil {
				require.ErrorIs(t, err, queue.ErrUnavailable)
				damaged++
				return dst, true
			}
			s, err := stored.Parse(dst, wanted[i].ID)
			require.NoError(t, err)
			out, err := decodersOf(r).Decode(t.Context(), nil, s)
			require.NoError(t, err)
			require.Equal(t, items[i].Document, string(out))
			return dst[:0], true
		})
		return damaged
	}
	require.Zero(t, requireHonestForms())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	for _, step := range []int{4001, 501, 7} {
		for offset := segment.HeaderBytes; offset < len(content)-segment.FooterBytes; offset += step {
			_, err := f.WriteAt([]byte{^content[offset]}, int64(offset))
			require.NoError(t, err)
		}
		require.NotZero(t, requireHonestForms())
	}
	require.NoError(t, os.Truncate(path, 4096))
	require.NotZero(t, requireHonestForms())
}

func TestStoredFormsAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector a sync.Pool drops items at random")
	}
	r, _, items := mappedQueue(t, "s2")
	wanted := make([]queue.Wanted, 3*queue.GroupDocuments)
	for i := range wanted {
		it := &items[i*7%len(items)]
		wanted[i] = queue.Wanted{ID: []byte(it.ID), Address: it.At}
	}
	dst := make([]byte, 0, 1<<20)
	all := func() {
		r.StoredForAll(dst, wanted, codec.Built(), func(i int, dst []byte, asStored bool, err error) ([]byte, bool) {
			if err != nil || !asStored {
				t.Fatal(i, err)
			}
			return dst, true
		})
	}
	all()
	require.Zero(t, testing.AllocsPerRun(100, all))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, _, _ = r.StoredFor(dst, queue.Wanted{ID: wanted[0].ID, Address: wanted[0].Address}, codec.Built())
	}))
}
