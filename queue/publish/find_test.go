package publish

import (
	"fmt"
	"testing"

	"docstore/queue"

	"github.com/stretchr/testify/require"
)

// Entries are found in the manifest, or the increment, that has published them first.
func TestFind(t *testing.T) {
	b, s := newBucket(t), newSource()
	w := s.openWriters(t)[0]
	defer func() { require.NoError(t, w.Close()) }()
	var p *Publisher
	want := map[queue.Address]Place{}
	put := func(place Place) {
		t.Helper()
		at, err := w.Append(fmt.Append(nil, len(want)), []byte("document"))
		require.NoError(t, err)
		require.NoError(t, w.Flush())
		want[at] = place
	}
	for n := range uint64(3) {
		put(Place{Manifest: n + 1})
		require.NoError(t, w.Seal())
		if p == nil {
			var err error
			p, err = OpenPublisher(t.Context(), b, s.dir, &Options{FS: s.fs, Stream: true})
			require.NoError(t, err)
			defer func() { require.NoError(t, p.Close()) }()
		}
		_, err := p.Publish(t.Context())
		require.NoError(t, err)
	}
	announce(t, b, record(t, b).Head)
	for n := range uint64(10) { // all fit into the open segment
		put(Place{Manifest: 3, Increment: n + 1})
		extended, err := p.Extend(t.Context())
		require.NoError(t, err)
		require.Empty(t, extended.Reason)
	}
	put(Place{})
	id, err := queue.IDOf(s.fs, s.dir+"/0000000001.seg")
	require.NoError(t, err)
	for at, place := range want {
		found, err := Find(t.Context(), b, record(t, b), 0, queue.Position{Queue: id, Next: at})
		require.NoError(t, err)
		found.Time = place.Time
		require.Equal(t, place, found, at)
		found, err = Find(t.Context(), b, record(t, b), 0, queue.Position{Queue: [16]byte{1}, Next: at})
		require.NoError(t, err)
		require.Zero(t, found, "of another queue")
	}
}
