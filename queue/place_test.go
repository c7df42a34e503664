package queue_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/require"
)

// randomPlace returns the place of the document at an address, or sometimes none, that of
// another document, or a wrong one.
func randomPlace(random *rand.Rand, places map[queue.Address]queue.Place, at queue.Address) (p queue.Place) {
	switch random.IntN(6) {
	case 0:
		return p
	case 1:
		for _, p = range places { // in any order
			return p
		}
	case 2:
		for i := range p {
			p[i] = byte(random.Uint32())
		}
		return p
	case 3:
		p = places[at]
		p[random.IntN(len(p))] ^= 1 << random.IntN(8)
		return p
	}
	return places[at]
}

// fetchPlaced is StoredFor, again without the place if that is not of the document. The place of the
// document itself must do.
func fetchPlaced(t *testing.T, r *queue.Reader, wanted queue.Wanted, own queue.Place) ([]byte, error) {
	t.Helper()
	document, _, err := r.StoredFor(nil, wanted, 0)
	if errors.Is(err, queue.ErrOtherPlace) {
		require.NotEqual(t, own, wanted.Place)
		wanted.Place = queue.Place{}
		document, _, err = r.StoredFor(nil, wanted, 0)
	}
	return document, err
}

// TestPlacesOfTables: every place is that of the block's table, in rewrites, originals and
// an open segment.
func TestPlacesOfTables(t *testing.T) {
	mem, items := mixedQueue(t, testseed.Rand(t), "s2")
	r := queuetest.OpenReader(t, mem)
	places := queuetest.PlacesOf(t, r)
	found := 0
	for _, it := range items {
		p := places[it.At]
		document, err := r.Document(nil, it.At)
		if err != nil || p == (queue.Place{}) {
			continue
		}
		require.Equal(t, len(document), p.RawBytes())
		f := r.Files().Get(it.At.Segment)
		require.NotNil(t, f)
		l, ok := p.Location(f.File, it.At, []byte(it.ID))
		require.True(t, ok)
		spare := segment.GetScratch()
		w := f.NewWindow(spare)
		want := segment.Location{Block: l.Block}
		require.NoError(t, w.MoveTo(want.Block))
		require.NoError(t, want.Locate(&w, it.At, p))
		require.Equal(t, want.Data, l.Data)
		require.Equal(t, want.CRC, l.CRC)
		require.Equal(t, want.RawAndFlags, l.RawAndFlags)
		require.Equal(t, want.StoredBytes(), l.StoredBytes())
		w.Release()
		spare.Release()
		r.Files().Put(f)
		found++
	}
	require.Greater(t, found, 200)
}

// TestFetchByPlaceNeedsNoTable: if all tables are damaged, documents with a place are
// served, and others are unavailable. A damaged document is unavailable with a place, too.
func TestFetchByPlaceNeedsNoTable(t *testing.T) {
	for _, codec := range codec.Names() {
		r, path, items := mappedQueue(t, codec)
		places := queuetest.PlacesOf(t, r)
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, it := range items {
			clear(content[it.At.Block:][:segment.BlockHeaderBytes])
		}
		l, ok := new(places[items[0].At]).Location(&segment.File{}, items[0].At, []byte(items[0].ID))
		require.True(t, ok)
		content[l.Data] ^= 1
		require.NoError(t, os.WriteFile(path, content, 0o666))
		for i, it := range items {
			wanted := queue.Wanted{ID: []byte(it.ID), Address: it.At, Place: places[it.At]}
			got, _, err := r.StoredFor([]byte("before"), wanted, 0)
			if i == 0 {
				require.ErrorIs(t, err, queue.ErrUnavailable)
				require.Equal(t, "before", string(got))
			} else {
				require.NoError(t, err)
				require.Equal(t, "before"+it.Document, string(got))
			}
			for _, wrong := range []queue.Wanted{
				{ID: wanted.ID, Address: it.At},
				{ID: []byte("other"), Address: it.At, Place: wanted.Place},
				{ID: wanted.ID, Address: queue.Address{Segment: it.At.Segment, Block: it.At.Block, Index: it.At.Index + 1}, Place: wanted.Place},
			} {
				_, _, err = r.StoredFor(nil, wrong, 0)
				require.ErrorIs(t, err, queue.ErrUnavailable)
			}
		}
	}
}

// TestPlacesOfReplacedFiles: documents are the same with the places of another queue, whose
// files were here before, as without.
func TestPlacesOfReplacedFiles(t *testing.T) {
	random := testseed.Rand(t)
	var places map[queue.Address]queue.Place
	same := 0
	for range 20 {
		mem := queuetest.NewMem(t)
		opts := queuetest.Options(mem)
		opts.Codec, opts.BlockBytes = codec.Names()[random.IntN(len(codec.Names()))], 1000
		w := queuetest.OpenWriter(t, opts)
		var items []queuetest.Item
		for range 1 + random.IntN(50) { // ids, lengths and so addresses repeat
			it := queuetest.Item{ID: fmt.Sprint(random.IntN(3)), Document: string(queuetest.RandomBytes(random, 20+random.IntN(2)))}
			it.Put(t, w)
			items = append(items, it)
		}
		require.NoError(t, w.Seal())
		r := queuetest.OpenReader(t, mem)
		for _, it := range items {
			if _, there := places[it.At]; there {
				same++
			}
			got, err := fetchPlaced(t, r, queue.Wanted{ID: []byte(it.ID), Address: it.At, Place: places[it.At]}, queuetest.PlacesOf(t, r)[it.At])
			require.NoError(t, err)
			require.Equal(t, it.Document, string(got))
		}
		places = queuetest.PlacesOf(t, r)
	}
	require.Positive(t, same)
}

// TestPlacesOfDamagedFiles damages bytes of a rewrite, an original or an open segment: the
// answer with a place is right or an error, and right if it is right without.
func TestPlacesOfDamagedFiles(t *testing.T) {
	random := testseed.Rand(t)
	mem, items := mixedQueue(t, random, "s2")
	r := queuetest.OpenReader(t, mem)
	places := queuetest.PlacesOf(t, r)
	names, err := mem.List(queuetest.Dir)
	require.NoError(t, err)
	saved := 0
	for range 100 {
		name := names[random.IntN(len(names))]
		if _, ok := queue.ParseFileName(name); !ok {
			continue
		}
		content, err := vfs.ReadFile(mem, queuetest.Dir+"/"+name)
		require.NoError(t, err)
		copied := queuetest.MemWith(t, map[string][]byte{name: queuetest.Damages[random.IntN(len(queuetest.Damages))].Do(content, random.IntN(len(content)))})
		damaged := queuetest.OpenReader(t, copied)
		for range 100 {
			it := items[random.IntN(len(items))]
			wanted := queue.Wanted{ID: []byte(it.ID), Address: it.At, Place: randomPlace(random, places, it.At)}
			got, err := fetchPlaced(t, damaged, wanted, queue.Place{})
			without, _, withoutErr := damaged.StoredFor(nil, queue.Wanted{ID: wanted.ID, Address: it.At}, 0)
			if err == nil {
				require.Equal(t, it.Document, string(got))
			}
			if withoutErr == nil {
				require.NoError(t, err)
				require.Equal(t, string(without), string(got))
			} else if err == nil {
				saved++
			}
		}
		require.NoError(t, damaged.Close())
	}
	t.Log(saved, "documents of blocks with damaged tables were served")
}
