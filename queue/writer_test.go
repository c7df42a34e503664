package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLimits appends values at each limit and beyond it.
func TestLimits(t *testing.T) {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.Codec = "s2"
	w := queuetest.OpenWriter(t, opts)
	var items []queuetest.Item
	for _, it := range []queuetest.Item{
		{ID: "x", Document: ""},
		{ID: strings.Repeat("x", queue.MaxIDBytes), Document: "longest id"},
		{ID: "large", Document: strings.Repeat("large ", queue.MaxDocumentBytes/6) + "1234"},
		{ID: "large and small", Document: string(queuetest.RandomBytes(testseed.Rand(t), queue.MaxBlockBytes))},
	} {
		it.Put(t, w)
		items = append(items, it)
	}
	_, err := w.Append(nil, nil)
	require.ErrorIs(t, err, queue.ErrIDEmpty)
	_, err = w.Delete(nil)
	require.ErrorIs(t, err, queue.ErrIDEmpty)
	_, err = w.Append(make([]byte, queue.MaxIDBytes+1), nil)
	require.ErrorIs(t, err, queue.ErrIDTooLong)
	_, err = w.Append([]byte("id"), make([]byte, queue.MaxDocumentBytes+1))
	require.ErrorIs(t, err, queue.ErrDocumentTooLarge)
	_, err = w.Put(queue.Record{ID: []byte("id"), Cursor: make([]byte, queue.MaxCursorBytes+1)})
	require.ErrorIs(t, err, queue.ErrCursorTooLong)
	_, err = w.Put(queue.Record{ID: []byte("id"), Document: []byte("document"), Delete: true})
	require.ErrorIs(t, err, queue.ErrDeleteWithDocument)
	_, err = w.Put(queue.Record{ID: []byte("id"), Expires: queuetest.Start, Delete: true})
	require.ErrorIs(t, err, queue.ErrDeleteWithDocument)

	w.SetCursor(make([]byte, queue.MaxCursorBytes+1))
	require.ErrorIs(t, w.Flush(), queue.ErrCursorTooLong)
	_, err = w.Append([]byte("id"), nil)
	require.ErrorIs(t, err, queue.ErrCursorTooLong)
	w.SetCursor(bytes.Repeat([]byte{7}, queue.MaxCursorBytes))
	require.NoError(t, w.Flush())

	r := queuetest.OpenReader(t, mem)
	queuetest.RequireItems(t, r, items)
	require.NoError(t, w.Close())
	queuetest.RequireSound(t, mem)
	assert.Equal(t, bytes.Repeat([]byte{7}, queue.MaxCursorBytes), queuetest.OpenWriter(t, queuetest.Options(mem)).Cursor())
}

func TestMostEntriesOfABlock(t *testing.T) {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.BlockBytes = queue.MaxBlockBytes
	w := queuetest.OpenWriter(t, opts)
	var items []queuetest.Item
	for i := range queue.MaxBlockEntries + 1 {
		it := queuetest.Item{ID: fmt.Sprint(i)}
		it.Put(t, w)
		items = append(items, it)
	}
	assert.Equal(t, queue.Address{Segment: 1, Block: segment.HeaderBytes, Index: queue.MaxBlockEntries - 1}, items[queue.MaxBlockEntries-1].At)
	assert.NotEqual(t, items[0].At.Block, items[queue.MaxBlockEntries].At.Block)
	require.NoError(t, w.Close())
	queuetest.RequireEntries(t, queuetest.OpenReader(t, mem), items)
	queuetest.RequireDocuments(t, queuetest.OpenReader(t, mem), items[queue.MaxBlockEntries-1:])
}

// TestRewriteOfAnySegmentFits: a segment ends before a rewrite of it could be too large, even
// if the documents lose their dictionary and are not compressed any more.
func TestRewriteOfAnySegmentFits(t *testing.T) {
	for _, name := range codec.Names() {
		t.Run(name, func(t *testing.T) {
			random := testseed.Rand(t)
			mem := queuetest.NewMem(t)
			opts := queuetest.Options(mem)
			opts.Codec, opts.BlockBytes, opts.DictionaryBytes = name, 1+random.IntN(4000), 1<<10
			w := queuetest.OpenWriter(t, opts)
			segments := map[queue.SegmentID]*int64{}
			put := func(it queuetest.Item) {
				it.Put(t, w)
				segments[it.At.Segment] = w.Rewritten()
			}
			put(queuetest.Item{ID: "first", Document: "the secret"})
			same := string(queuetest.RandomBytes(random, 300)) // shorter only with the dictionary
			for i := range 500 {
				id := fmt.Sprint(i, strings.Repeat("x", random.IntN(100)))
				put(queuetest.Item{ID: id, Document: same + strconv.Itoa(i), Expires: queuetest.Start.Add(24 * time.Hour)})
			}
			w.SetCursor(queuetest.RandomBytes(random, queue.MaxCursorBytes))
			require.NoError(t, w.Seal())
			put(queuetest.Item{ID: "first", Deleted: true})
			require.NoError(t, w.Close())

			report, err := maintain.Compact(context.Background(), queuetest.Dir, &maintain.CompactOptions{
				FS: mem, EraseDead: true, MaxDead: 1, Now: func() time.Time { return queuetest.Start.Add(time.Hour) },
				DictionaryBytes: codec.MaxDictionaryBytes, // too few documents for it
			})
			require.NoError(t, err)
			require.Equal(t, name == "s2" || name == "zstd", 10*report.BytesAfter > 13*report.BytesBefore, "else no document is larger than before")
			infos, err := queuetest.OpenReader(t, mem).Segments()
			require.NoError(t, err)
			rewrites := 0
			for _, info := range infos {
				const originalBytes = 40 // of a segment in the table of relocations
				most := int64(segment.HeaderBytes + segment.RelocationsHeadBytes + queue.MaxCursorBytes + segment.FooterBytes)
				for n := info.ID; n <= info.Last; n++ {
					most += *segments[n] + originalBytes
				}
				if info.Generation > 0 {
					rewrites++
					require.LessOrEqual(t, info.Bytes, most)
				}
			}
			require.Positive(t, rewrites)
		})
	}
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := queue.OpenWriter(queuetest.Dir, &queue.WriterOptions{
		FS: queuetest.NewMem(t), Codec: "zip", BlockBytes: queue.MaxBlockBytes + 1, SegmentBytes: -1, SegmentAge: -1,
	})
	require.ErrorIs(t, err, queue.ErrUnknownCodec)
	for _, fault := range []string{"BlockBytes", "SegmentBytes", "SegmentAge", `"zip": this build has [`} {
		assert.ErrorContains(t, err, fault)
	}
	_, err = queue.OpenWriter(queuetest.Dir, &queue.WriterOptions{FS: queuetest.NewMem(t), SegmentBytes: queue.MinSegmentBytes - 1})
	require.EqualError(t, err, "queue: SegmentBytes is 1023, it must be from 1024 to 4294967296")
}

// TestCursor: after a crash the cursor is the one set after the last entry that was
// found.
func TestCursor(t *testing.T) {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.BlockBytes = 100
	w := queuetest.OpenWriter(t, opts)
	require.Nil(t, w.Cursor())
	for i := range 50 {
		_, err := w.Append([]byte(fmt.Sprint(i)), []byte("a document"))
		require.NoError(t, err)
		w.SetCursor([]byte(fmt.Sprint("cursor ", i)))
		if i%20 == 19 {
			require.NoError(t, w.Seal())
		}
		killed := mem.ProcessCrashClone()
		again, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(killed))
		require.NoError(t, err)
		r := queuetest.OpenReader(t, killed)
		want := ""
		if found := queuetest.Scan(t, r, queue.Position{}); len(found) > 0 {
			want = "cursor " + found[len(found)-1].ID
		}
		require.Equal(t, want, string(again.Cursor()))
		require.NoError(t, again.Close())
	}
	require.NoError(t, w.Close())

	// Later segments without a SetCursor keep it.
	for range 2 {
		w, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(mem))
		require.NoError(t, err)
		require.Equal(t, "cursor 49", string(w.Cursor()))
		_, err = w.Append([]byte("id"), nil)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
}

func TestSegmentsRollBySizeAndAge(t *testing.T) {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	var later atomic.Int64 // than the start
	opts.Now = func() time.Time { return queuetest.Start.Add(time.Duration(later.Load())) }
	opts.BlockBytes, opts.SegmentBytes, opts.SegmentAge = 1000, 10_000, time.Hour
	w := queuetest.OpenWriter(t, opts)
	var at queue.Address
	var err error
	for range 200 {
		at, err = w.Append([]byte("id"), make([]byte, 500))
		require.NoError(t, err)
	}
	require.NoError(t, w.Flush())
	r := queuetest.OpenReader(t, mem)
	infos, err := r.Segments()
	require.NoError(t, err)
	for i, info := range infos {
		assert.EqualValues(t, i+1, info.ID)
		assert.Equal(t, i < len(infos)-1, info.Sealed)
		assert.Less(t, info.Bytes, int64(12_000))
	}
	require.EqualValues(t, len(infos), at.Segment)

	later.Store(int64(time.Hour - time.Millisecond))
	require.NoError(t, w.Flush())
	require.Len(t, sealedOf(t, mem), len(infos)-1)
	later.Store(int64(time.Hour))
	require.NoError(t, w.Flush())
	require.Len(t, sealedOf(t, mem), len(infos), "by Flush")

	first, err := w.Append([]byte("id"), nil)
	require.NoError(t, err)
	later.Store(int64(2 * time.Hour))
	second, err := w.Append([]byte("id"), nil)
	require.NoError(t, err)
	assert.Equal(t, first.Segment+1, second.Segment, "by Append")
	require.NoError(t, w.Close())
	queuetest.RequireSound(t, mem)
}

func sealedOf(t *testing.T, fsys vfs.FS) map[queue.SegmentID]bool {
	l, err := segment.List(fsys, queuetest.Dir)
	require.NoError(t, err)
	return l.Sealed
}

// TestNothingWrittenLeavesNothing: a writer without entries creates no segment.
func TestNothingWrittenLeavesNothing(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	w.SetCursor([]byte("cursor"))
	require.NoError(t, w.Flush())
	require.NoError(t, w.Seal())
	require.NoError(t, w.Close())
	names, err := mem.List(queuetest.Dir)
	require.NoError(t, err)
	assert.Equal(t, []string{segment.LockName}, names)
}

// TestManyAppenders: concurrent appends get different addresses, and each address has the
// right document.
func TestManyAppenders(t *testing.T) {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.Codec, opts.BlockBytes, opts.SegmentBytes = "s2", 2000, 20_000
	w := queuetest.OpenWriter(t, opts)
	var all sync.Map
	var wait sync.WaitGroup
	for g := range 4 {
		wait.Go(func() {
			for i := range 200 {
				document := fmt.Sprint("document ", i, " of ", g)
				at, err := w.Append([]byte(fmt.Sprint(g)), []byte(document))
				if err != nil || i%50 == 0 && w.Flush() != nil {
					return
				}
				all.Store(at, document)
			}
		})
	}
	wait.Wait()
	require.NoError(t, w.Close())
	r := queuetest.OpenReader(t, mem)
	count := 0
	all.Range(func(at, document any) bool {
		got, err := r.Document(nil, at.(queue.Address))
		require.NoError(t, err)
		require.Equal(t, document, string(got))
		count++
		return true
	})
	require.Equal(t, 800, count)
	require.Len(t, queuetest.Scan(t, r, queue.Position{}), 800)
}

func TestOpenBelowSealedIsRefused(t *testing.T) {
	files, _ := queuetest.SmallQueue(t, "none", true)
	mem := queuetest.MemWith(t, map[string][]byte{
		"0000000001.open": files["0000000001.seg"], "0000000002.seg": files["0000000002.seg"],
	})
	_, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(mem))
	require.ErrorContains(t, err, "segment 1 is not sealed but later segments exist")
}

// TestExpirySeconds: times are rounded up to the second and limited to 32 bits.
func TestExpirySeconds(t *testing.T) {
	for _, c := range []struct {
		at   time.Time
		want uint32
	}{
		{time.Time{}, 0},
		{time.Unix(100, 0), 100},
		{time.Unix(100, 1), 101},
		{time.Unix(0, 0), 1},
		{time.Unix(-5, 0), 1},
		{time.Unix(math.MaxUint32+10, 0), math.MaxUint32},
	} {
		assert.Equal(t, c.want, segment.ExpirySeconds(c.at), "%v", c.at)
	}
}

// TestCursorTravelsWithItsEntry: with concurrent flushes each block has the cursor that
// was put with its last entry.
func TestCursorTravelsWithItsEntry(t *testing.T) {
	mem := queuetest.NewMem(t)
	w := queuetest.OpenWriter(t, queuetest.Options(mem))
	due, flushed := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for range due {
			err = errors.Join(err, w.Flush())
		}
		flushed <- err
	}()
	for n := range 40_000 {
		if n%20 == 19 {
			due <- struct{}{} // and continue meanwhile
		}
		r := queue.Record{ID: fmt.Append(nil, "line ", n), Delete: n%3 == 0, Cursor: fmt.Append(nil, "line ", n)}
		_, err := w.Put(r)
		require.NoError(t, err)
	}
	close(due)
	require.NoError(t, <-flushed)
	require.NoError(t, w.Close())

	s, err := segment.Open(mem, segment.Path(queuetest.Dir, 1, segment.SealedSuffix), 1)
	require.NoError(t, err)
	defer s.Close()
	walk, b := s.NewWalk(), segment.Block{}
	for {
		kind, err := walk.Step(s, &b)
		require.NoError(t, err)
		if kind == segment.FrameFooter {
			break
		}
		if kind == segment.FrameBlock {
			require.Equal(t, string(b.ID(b.Entry(b.Count-1))), string(b.Cursor()))
		}
	}
}

// TestSealedNameIsDurable: after Seal has returned, a power loss leaves the segment under
// its final name, which rsync copies.
func TestSealedNameIsDurable(t *testing.T) {
	mem := vfs.NewMem()
	w, err := queue.OpenWriter(queuetest.Dir, queuetest.Options(mem))
	require.NoError(t, err)
	at, err := w.Append([]byte("id"), []byte("document"))
	require.NoError(t, err)
	require.NoError(t, w.Seal())
	_, err = mem.CrashClone(vfs.KeepSynced).Stat(segment.Path(queuetest.Dir, at.Segment, segment.SealedSuffix))
	require.NoError(t, err)
	require.NoError(t, w.Close())
}
