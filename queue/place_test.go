package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"docstore/internal/testseed"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/codec"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/require"
)

// placesOf returns the places of all documents.
func placesOf(t testing.TB, r *queue.Reader) map[queue.Address]queue.Place {
	places := map[queue.Address]queue.Place{}
	require.NoError(t, r.Scan(context.Background(), queue.Position{}, func(e queue.Entry) error {
		require.Equal(t, e.Deleted, e.Place == queue.Place{})
		require.Equal(t, e.StoredBytes, e.Place.StoredBytes())
		places[e.Address] = e.Place
		return nil
	}))
	return places
}

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

// TestPlacesOfTables: every place is that of the block's table, in rewrites, originals and
// an open segment.
func TestPlacesOfTables(t *testing.T) {
	r, items := mixedQueue(t, testseed.Rand(t), "s2")
	places := placesOf(t, r)
	found := 0
	for _, it := range items {
		p := places[it.at]
		document, err := r.Document(nil, it.at)
		if err != nil || p == (queue.Place{}) {
			continue
		}
		require.Equal(t, len(document), p.RawBytes())
		f := r.Files().Get(it.at.Segment)
		require.NotNil(t, f)
		l, ok := p.Location(f.File, it.at, []byte(it.id))
		require.True(t, ok)
		spare := segment.GetScratch()
		w := f.NewWindow(spare)
		want := segment.Location{Block: l.Block}
		require.NoError(t, w.MoveTo(want.Block))
		require.NoError(t, want.Locate(&w, it.at))
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
		places := placesOf(t, r)
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, it := range items {
			clear(content[it.at.Block:][:segment.BlockHeaderBytes])
		}
		l, ok := new(places[items[0].at]).Location(&segment.File{}, items[0].at, []byte(items[0].id))
		require.True(t, ok)
		content[l.Data] ^= 1
		require.NoError(t, os.WriteFile(path, content, 0o666))
		for i, it := range items {
			wanted := queue.Wanted{ID: []byte(it.id), Address: it.at, Place: places[it.at]}
			got, _, err := r.StoredFor([]byte("before"), wanted, 0)
			if i == 0 {
				require.ErrorIs(t, err, queue.ErrUnavailable)
				require.Equal(t, "before", string(got))
			} else {
				require.NoError(t, err)
				require.Equal(t, "before"+it.document, string(got))
			}
			for _, wrong := range []queue.Wanted{
				{ID: wanted.ID, Address: it.at},
				{ID: []byte("other"), Address: it.at, Place: wanted.Place},
				{ID: wanted.ID, Address: queue.Address{Segment: it.at.Segment, Block: it.at.Block, Index: it.at.Index + 1}, Place: wanted.Place},
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
		mem := newMem(t)
		opts := testOptions(mem)
		opts.Codec, opts.BlockBytes = codec.Names()[random.IntN(len(codec.Names()))], 1000
		w := openWriter(t, opts)
		var items []item
		for range 1 + random.IntN(50) { // ids, lengths and so addresses repeat
			it := item{id: fmt.Sprint(random.IntN(3)), document: string(randomBytes(random, 20+random.IntN(2)))}
			it.put(t, w)
			items = append(items, it)
		}
		require.NoError(t, w.Seal())
		r := openReader(t, mem)
		for _, it := range items {
			if _, there := places[it.at]; there {
				same++
			}
			got, _, err := r.StoredFor(nil, queue.Wanted{ID: []byte(it.id), Address: it.at, Place: places[it.at]}, 0)
			require.NoError(t, err)
			require.Equal(t, it.document, string(got))
		}
		places = placesOf(t, r)
	}
	require.Positive(t, same)
}

// TestPlacesOfDamagedFiles damages bytes of a rewrite, an original or an open segment: the
// answer with a place is right or an error, and right if it is right without.
func TestPlacesOfDamagedFiles(t *testing.T) {
	random := testseed.Rand(t)
	r, items := mixedQueue(t, random, "s2")
	places := placesOf(t, r)
	mem := r.Options().FS.(*vfs.Mem)
	names, err := mem.List(queueDir)
	require.NoError(t, err)
	saved := 0
	for range 100 {
		name := names[random.IntN(len(names))]
		if _, ok := queue.ParseFileName(name); !ok {
			continue
		}
		content, err := vfs.ReadFile(mem, queueDir+"/"+name)
		require.NoError(t, err)
		copied := memWith(t, map[string][]byte{name: damages[random.IntN(len(damages))].do(content, random.IntN(len(content)))})
		damaged := openReader(t, copied)
		for range 100 {
			it := items[random.IntN(len(items))]
			wanted := queue.Wanted{ID: []byte(it.id), Address: it.at, Place: randomPlace(random, places, it.at)}
			got, _, err := damaged.StoredFor(nil, wanted, 0)
			without, _, withoutErr := damaged.StoredFor(nil, queue.Wanted{ID: wanted.ID, Address: it.at}, 0)
			if err == nil {
				require.Equal(t, it.document, string(got))
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
