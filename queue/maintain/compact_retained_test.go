package maintain_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/require"
)

// stateAt returns the documents of a queue up to the end of a segment.
func stateAt(t *testing.T, fsys vfs.FS, end queue.SegmentID) map[string]string {
	t.Helper()
	r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: fsys})
	require.NoError(t, err)
	defer r.Close()
	state := map[string]string{}
	require.NoError(t, r.Scan(context.Background(), queue.Position{}, func(e queue.Entry) error {
		if e.Address.Segment > end {
			return nil
		}
		delete(state, string(e.ID))
		if e.Deleted {
			return nil
		}
		document, err := r.DocumentFor(nil, e.ID, e.Address)
		state[string(e.ID)] = string(document)
		return err
	}))
	return state
}

// appendBatch appends random entries to a new segment, and to the state.
func appendBatch(t *testing.T, fsys vfs.FS, random *rand.Rand, now time.Time, state map[string]string) queue.SegmentID {
	t.Helper()
	w, err := queue.OpenWriter(queuetest.Dir, &queue.WriterOptions{FS: fsys, SegmentBytes: queue.MinSegmentBytes, Codec: "none", Now: func() time.Time { return now }})
	require.NoError(t, err)
	var at queue.Address
	for range 1 + random.IntN(6) {
		id, document := fmt.Sprint("id-", random.IntN(8)), fmt.Sprint(random.Uint64())
		if random.IntN(3) == 0 {
			at, err = w.Delete([]byte(id))
			delete(state, id)
		} else {
			at, err = w.Append([]byte(id), []byte(document))
			state[id] = document
		}
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return at.Segment
}

// TestCompactKeepsRetainedStates compacts again and again, while entries are appended and
// some states are released. Ends of states that are retained too late, of which an earlier compaction
// has removed entries, change nothing else.
func TestCompactKeepsRetainedStates(t *testing.T) {
	random, mem, now := testseed.Rand(t), queuetest.NewMem(t), queuetest.Start
	newest, states := map[string]string{}, map[queue.SegmentID]map[string]string{}
	for range 60 {
		now = now.Add(time.Hour)
		end := appendBatch(t, mem, random, now, newest)
		if random.IntN(3) == 0 {
			states[end] = maps.Clone(newest)
		}
		if random.IntN(3) > 0 {
			continue
		}
		for end := range states {
			if random.IntN(3) == 0 {
				delete(states, end)
			}
		}
		ends := slices.Collect(maps.Keys(states))
		for range random.IntN(3) {
			ends = append(ends, 1+queue.SegmentID(random.IntN(int(end))))
		}
		slices.Sort(ends)
		_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
			FS: mem, MaxDead: 0.01 + random.Float64()/2, DeleteOriginals: true, Now: func() time.Time { return now },
			EraseDead: random.IntN(2) == 0, EraseAfter: time.Hour, RetainedEnds: slices.Compact(ends),
		})
		require.NoError(t, err)
		for end, state := range states {
			require.Equal(t, state, stateAt(t, mem, end), "segment %d of %d", end, slices.Sorted(maps.Keys(states)))
		}
		require.Equal(t, newest, stateAt(t, mem, maxSegmentID))
	}
}

const maxSegmentID = queue.SegmentID(1<<32 - 1)

// TestDeleteOfRetainedVersionStays: a retained state ends within a file, because it was published
// after its segments had been compacted. It retains a version of a document in the file that a
// compaction merges with the document's delete.
func TestDeleteOfRetainedVersionStays(t *testing.T) {
	mem, now := queuetest.NewMem(t), queuetest.Start
	write := func(change func(w *queue.Writer)) {
		w, err := queue.OpenWriter(queuetest.Dir, &queue.WriterOptions{FS: mem, Codec: "none", Now: func() time.Time { return now }})
		require.NoError(t, err)
		change(w)
		require.NoError(t, w.Close())
	}
	put := func(id string) func(w *queue.Writer) {
		return func(w *queue.Writer) {
			_, err := w.Append([]byte(id), []byte("document of "+id))
			require.NoError(t, err)
		}
	}
	compact := func(ends ...queue.SegmentID) {
		_, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
			FS: mem, MaxDead: 0.01, DeleteOriginals: true, Now: func() time.Time { return now }, RetainedEnds: ends,
		})
		require.NoError(t, err)
	}
	write(func(w *queue.Writer) { put("id")(w); put("other")(w) })
	write(func(w *queue.Writer) { put("third")(w); put("other")(w) })
	write(func(w *queue.Writer) { put("other")(w) })
	compact()
	write(func(w *queue.Writer) {
		_, err := w.Delete([]byte("id"))
		require.NoError(t, err)
		put("third")(w)
		put("other")(w)
	})
	write(func(w *queue.Writer) { put("newest")(w); put("other")(w) })
	compact(1)
	require.Contains(t, stateAt(t, mem, 1), "id")
	require.NotContains(t, stateAt(t, mem, maxSegmentID), "id")
	compact()
	require.NotContains(t, stateAt(t, mem, maxSegmentID), "id")
}

// TestEraseReportsRetainedStates: a document that a retained state needs is erased after the
// state was released.
func TestEraseReportsRetainedStates(t *testing.T) {
	mem, now := queuetest.NewMem(t), queuetest.Start
	write := func(id, document string) {
		w, err := queue.OpenWriter(queuetest.Dir, &queue.WriterOptions{FS: mem, Codec: "none", Now: func() time.Time { return now }})
		require.NoError(t, err)
		_, err = w.Append([]byte(id), []byte(document))
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	write("id", "secret")
	write("other", "public")
	write("id", "corrected")
	write("other", "changed")
	now = now.Add(2 * time.Hour)
	erase := func(ends ...queue.SegmentID) maintain.CompactReport {
		report, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
			FS: mem, EraseDead: true, EraseAfter: time.Hour, DeleteOriginals: true, Now: func() time.Time { return now }, RetainedEnds: ends,
		})
		require.NoError(t, err)
		return report
	}
	require.Equal(t, []queue.SegmentID{1, 2, 3}, erase(1, 2, 3).Held)
	require.NotEmpty(t, filesWith(t, mem, "secret"))
	require.Equal(t, []queue.SegmentID{3}, erase(3).Held, "only the other document")
	require.Empty(t, filesWith(t, mem, "secret"))
	require.Empty(t, erase().Held)
	require.Empty(t, filesWith(t, mem, "public"))
}
