package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"docstore/internal/testseed"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/dictionary"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"
	"docstore/queue/maintain"
	"docstore/queue/stored"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDictionary: the first segment has none and ends when one has been trained. That one
// stays in use, also with the next writer, because no new one is much better.
func TestDictionary(t *testing.T) {
	for _, compression := range dictionaryCodecs() {
		t.Run(compression.Name, func(t *testing.T) {
			mem := queuetest.NewMem(t)
			opts := queuetest.Options(mem)
			opts.Codec, opts.DictionaryBytes, opts.BlockBytes, opts.SegmentBytes = compression.Name, 4<<10, 4<<10, 100<<10
			var items []queuetest.Item
			write := func(count int) {
				w, err := queue.OpenWriter(queuetest.Dir, opts)
				require.NoError(t, err)
				for range count {
					it := queuetest.Item{ID: fmt.Sprint(len(items)), Document: queuetest.Posting(len(items))}
					it.Put(t, w)
					items = append(items, it)
					if len(items)%20 == 0 { // or the test would be over before the training
						w.Trainer().Wait()
					}
				}
				require.NoError(t, w.Close())
			}
			write(2500)
			write(1000)
			r := queuetest.OpenReader(t, mem)
			queuetest.RequireItems(t, r, items)
			queuetest.RequireSound(t, mem)
			infos, err := r.Segments()
			require.NoError(t, err)
			require.Greater(t, len(infos), 3)
			require.Zero(t, infos[0].DictionaryBytes)
			require.NotZero(t, infos[1].DictionaryBytes)
			assert.GreaterOrEqual(t, infos[0].RawBytes, int64(dictionary.Share*infos[1].DictionaryBytes))
			ratio := func(i queue.SegmentInfo) float64 { return float64(i.StoredBytes) / float64(i.RawBytes) }
			hashes := map[codec.DictionaryHash]bool{}
			maxDecoderBytes := int64(0)
			with := 0
			for _, info := range infos[1:] {
				if info.DictionaryBytes == 0 { // the first after a short one
					assert.Less(t, info.RawBytes, int64(dictionary.Share*6<<10))
					continue
				}
				with++
				maxDecoderBytes = max(maxDecoderBytes, int64(info.DictionaryBytes)+compression.DecoderBytes)
				assert.Less(t, ratio(info), 0.85*ratio(infos[0]), "segment %d", info.ID)
				s, err := segment.Open(mem, segment.Path(queuetest.Dir, info.ID, segment.SealedSuffix), info.ID)
				require.NoError(t, err)
				hashes[s.Header.Dictionary.Hash] = true
				s.Close()
			}
			assert.Greater(t, with, 2)
			assert.Less(t, len(hashes), 3, "a dictionary is not kept")
			assert.LessOrEqual(t, r.Files().Decoders.Bytes(), int64(len(hashes)+1)*maxDecoderBytes, "a dictionary is not shared")
		})
	}
}

// TestSmallSegmentsCarryNoDictionary: the dictionary would be larger than the documents.
func TestSmallSegmentsCarryNoDictionary(t *testing.T) {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.Codec, opts.DictionaryBytes = "s2", 2<<10
	n := 0
	write := func(count int) {
		w, err := queue.OpenWriter(queuetest.Dir, opts)
		require.NoError(t, err)
		for range count {
			_, err := w.Append([]byte(fmt.Sprint(n)), []byte(queuetest.Posting(n)))
			require.NoError(t, err)
			n++
		}
		require.NoError(t, w.Flush())
		w.Trainer().Wait()
		require.NoError(t, w.Close())
	}
	write(300) // trains, too late for itself
	write(1)
	r := queuetest.OpenReader(t, mem)
	infos, err := r.Segments()
	require.NoError(t, err)
	require.Len(t, infos, 2)
	assert.Zero(t, infos[0].DictionaryBytes)
	assert.Zero(t, infos[1].DictionaryBytes, "the dictionary was lost with its writer")
}

// TestCloseTrainsNothing: Close trains no dictionary, because it would not be used. Seal
// does.
func TestCloseTrainsNothing(t *testing.T) {
	for _, closes := range []bool{true, false} {
		opts := queuetest.Options(queuetest.NewMem(t))
		opts.Codec, opts.DictionaryBytes = "s2", 1<<10
		opts.BlockBytes = queue.MaxBlockBytes // no block ends early
		w, err := queue.OpenWriter(queuetest.Dir, opts)
		require.NoError(t, err)
		trainings := 0
		train := w.Trainer().Codec.Train
		w.Trainer().Codec.Train = func(sample [][]byte, size int) ([]byte, error) {
			trainings++
			return train(sample, size)
		}
		for i := range 100 {
			_, err := w.Append(fmt.Append(nil, i), []byte(queuetest.Posting(i)))
			require.NoError(t, err)
		}
		if !closes {
			require.NoError(t, w.Seal())
		}
		require.NoError(t, w.Close())
		require.Equal(t, closes, trainings == 0)
	}
}

// dictionaryCodecs returns the codecs that support dictionaries.
func dictionaryCodecs() []codec.Codec {
	return slices.DeleteFunc(slices.Clone(codec.All()), func(c codec.Codec) bool { return c.Train == nil })
}

// TestFilesAreEvicted: a full cache evicts a file that was not used recently, closes it
// after its last user has put it back, and reopens it on demand.
func TestFilesAreEvicted(t *testing.T) {
	files, items := queuetest.SmallQueue(t, "none", true)
	r := queuetest.OpenReader(t, queuetest.MemWith(t, files))
	queuetest.RequireDocuments(t, r, items)
	first, second := r.Files().Get(1), r.Files().Get(2)
	r.Files().Limit = 1
	r.Files().Keep(second, 2, r.Files().Epoch())
	require.Nil(t, r.Files().Get(1))
	require.Same(t, second, r.Files().Get(2), "the newest one stays")
	kind, err := first.Frame(new(segment.Block), first.Header.FirstFrame())
	require.NoError(t, err, "closed while in use")
	require.Equal(t, segment.FrameBlock, kind)
	r.Files().Put(first)
	r.Files().Put(second)
	r.Files().Put(second)
	require.Equal(t, 1, requireCache(t, r))
	r.Files().Limit = 100
	queuetest.RequireDocuments(t, r, items)
	again := r.Files().Get(1)
	require.NotSame(t, first, again)
	r.Files().Put(again)
	require.NoError(t, r.Close())
	require.Zero(t, requireCache(t, r))
}

// TestDictionariesStayWithinBudget: readers that share a stored.DecoderCache keep no more
// dictionaries than fit into it, however many files are open, and decode all documents.
func TestDictionariesStayWithinBudget(t *testing.T) {
	const dictionaryBytes, kept = 1000, 5
	random := testseed.Rand(t)
	s2, err := codec.ByName("s2")
	require.NoError(t, err)
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.Codec, opts.DictionaryBytes = "s2", -1
	w := queuetest.OpenWriter(t, opts)
	var items []queuetest.Item
	for range 4 * kept { // segments
		content, err := s2.Train([][]byte{queuetest.RandomBytes(random, dictionaryBytes)}, dictionaryBytes)
		require.NoError(t, err)
		d, err := dictionary.New(s2, content)
		require.NoError(t, err)
		w.Trainer().Use(d)
		w.SetLastRaw(dictionary.Share * dictionaryBytes * 2)
		for i := range 3 {
			it := queuetest.Item{ID: fmt.Sprint(i), Document: string(content[i*100:][:500])}
			it.Put(t, w)
			items = append(items, it)
		}
		require.NoError(t, w.Seal())
	}
	decoders := stored.NewDecoderCache(kept * (dictionaryBytes + 100))
	for range 3 {
		r, err := queue.OpenReader(queuetest.Dir, &queue.ReaderOptions{FS: mem, Decoders: decoders})
		require.NoError(t, err)
		defer r.Close()
		queuetest.RequireDocuments(t, r, items)
		require.Equal(t, 4*kept, requireCache(t, r))
		require.LessOrEqual(t, decoders.Bytes(), int64(kept*(dictionaryBytes+100)))
		require.Greater(t, decoders.Bytes(), int64((kept-1)*(dictionaryBytes+100)), "fewer than fit")
	}
}

// TestWriterDropsErasedDictionary: a Writer does not reuse a dictionary trained from
// documents that were erased since, but does reuse others.
func TestWriterDropsErasedDictionary(t *testing.T) {
	t.Run("rewritten", func(t *testing.T) {
		d, sampled := dictionaryAfter(t, &maintain.CompactOptions{MaxDead: 0.001})
		require.NotNil(t, d)
		require.Equal(t, sampled, d.Sampled)
	})
	t.Run("erased", func(t *testing.T) {
		d, sampled := dictionaryAfter(t, &maintain.CompactOptions{MaxDead: 1, EraseDead: true, DeleteOriginals: true})
		if d != nil { // an earlier one
			require.Less(t, d.Sampled.Last, sampled.First)
		}
	})
}

// dictionaryAfter runs Compact while a Writer has deleted a document that its dictionary was trained
// from, and has begun a segment with this dictionary, which Compact leaves. It returns the dictionary
// of the next Writer, and the segments that the first one's was trained from.
func dictionaryAfter(t *testing.T, compact *maintain.CompactOptions) (*dictionary.Dictionary, segment.Run) {
	mem := queuetest.NewMem(t)
	opts := queuetest.Options(mem)
	opts.Codec, opts.SegmentBytes, opts.DictionaryBytes = "s2", 20_000, 256
	w := queuetest.OpenWriter(t, opts)
	items := make([]queuetest.Item, 300)
	for i := range items {
		items[i] = queuetest.Item{ID: fmt.Sprint(i), Document: queuetest.Posting(i)}
		items[i].Put(t, w)
		require.NoError(t, w.Flush())
	}
	require.NoError(t, w.Close())
	w = queuetest.OpenWriter(t, opts)
	require.NotNil(t, w.Trainer().Current())
	sampled := w.Trainer().Current().Sampled // the trainer may have trained again meanwhile
	sample := slices.IndexFunc(items, func(i queuetest.Item) bool { return i.At.Segment == sampled.First })
	require.GreaterOrEqual(t, sample, 0)
	(&queuetest.Item{ID: items[sample].ID, Deleted: true}).Put(t, w)
	require.NoError(t, w.Flush())

	compact.FS, compact.Now = mem, func() time.Time { return queuetest.Start.Add(time.Hour) }
	_, err := maintain.Compact(t.Context(), queuetest.Dir, compact)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return queuetest.OpenWriter(t, opts).Trainer().Current(), sampled
}
