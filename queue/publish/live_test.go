package publish

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/queue"
)

// TestSegmentsAreSealedForAManifest: those of all shards, and that of one queue when the publisher
// was opened, because increments may have announced a part of it.
func TestSegmentsAreSealedForAManifest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	w, err := queue.OpenWriter(dir, nil)
	require.NoError(t, err)
	_, err = w.Put(queue.Record{ID: []byte("a"), Document: []byte("{}")})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for _, test := range []struct {
		shards           int
		announce, opened bool
		sealed           bool
	}{{1, true, true, true}, {1, true, false, false}, {1, false, true, false}, {4, true, false, true}, {4, false, false, true}} {
		seals := 0
		p := &Live{dir: dir, options: LiveOptions{Announce: test.announce, Seal: func() error { seals++; return nil }}}
		_, err := p.sealAll(make([]queue.SegmentID, test.shards), test.opened)
		require.NoError(t, err)
		require.Equal(t, test.sealed, seals == 1, "%+v", test)
	}
}
