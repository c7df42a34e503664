package queue_test

import (
	"os"
	"testing"

	"docstore/internal/testseed"
	"docstore/queue"
	"docstore/queue/internal/queuetest"

	"github.com/stretchr/testify/require"
)

// TestReadAheadHoldsNothing: ReadAhead puts every file back, whatever was requested.
func TestReadAheadHoldsNothing(t *testing.T) {
	random := testseed.Rand(t)
	r, path, items := mappedQueue(t, "none")
	places := queuetest.PlacesOf(t, r)
	wanted := make([]queue.Wanted, queue.ColdDocuments+100)
	for i := range wanted {
		it := items[random.IntN(len(items))]
		wanted[i] = queue.Wanted{ID: []byte(it.ID), Address: it.At, Place: randomPlace(random, places, it.At)}
		switch random.IntN(6) {
		case 0:
			wanted[i].Address.Index += uint16(random.IntN(1000))
		case 1:
			wanted[i].Address.Block = random.Uint32()
		case 2:
			wanted[i].Address.Segment++
		}
	}
	r.ReadAhead(wanted) // no file is open
	_, mapped := r.Resident()
	require.Zero(t, mapped)
	queuetest.RequireDocuments(t, r, items[:1]) // the segment's file is in the cache
	for _, size := range []int64{-1, 100, 0} {  // also after the file was cut
		if size >= 0 {
			require.NoError(t, os.Truncate(path, size))
		}
		r.ReadAhead(wanted)
		_, _ = r.Resident()
		require.Equal(t, 1, requireCache(t, r))
	}
	require.NoError(t, r.Close())
	r.ReadAhead(wanted)
}

// TestReadAheadOfRewrites: documents of rewrites and of an open segment, deletes and dropped
// documents are requested, too.
func TestReadAheadOfRewrites(t *testing.T) {
	mem, items := mixedQueue(t, testseed.Rand(t), "s2")
	r := queuetest.OpenReader(t, mem)
	var wanted []queue.Wanted
	for _, it := range items {
		_, _ = r.Document(nil, it.At) // opens the file
		wanted = append(wanted, queue.Wanted{ID: []byte(it.ID), Address: it.At})
	}
	r.ReadAhead(wanted)
	require.Positive(t, requireCache(t, r), "every file was put back")
}
