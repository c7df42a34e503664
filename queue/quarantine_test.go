package queue_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"docstore/queue"
	"docstore/queue/internal/queuetest"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/require"
)

// TestQuarantinedFile: undamaged documents of a quarantined file are served until the
// file is copied again, and not after.
func TestQuarantinedFile(t *testing.T) {
	for _, suffix := range []string{segment.SealedSuffix, segment.OpenSuffix} {
		t.Run(suffix, func(t *testing.T) {
			files, items := queuetest.SmallQueue(t, "none", suffix == segment.SealedSuffix)
			name := filepath.Base(segment.Path("", 2, suffix))
			damaged := bytes.Clone(files[name])
			sound, last := items[5], items[len(items)-1]
			require.EqualValues(t, 2, sound.At.Segment)
			damaged[sound.At.Block] ^= 1 // the checksum of a table, which a fetch does not need
			damaged[bytes.LastIndex(damaged, []byte(last.Document))] ^= 1

			whole := files[name]
			delete(files, name)
			files[name+queue.QuarantineSuffix] = damaged
			mem := queuetest.MemWith(t, files)
			r := queuetest.OpenReader(t, mem)
			queuetest.RequireDocuments(t, r, []queuetest.Item{sound})
			_, err := r.DocumentFor(nil, []byte(last.ID), last.At)
			require.ErrorIs(t, err, queue.ErrUnavailable)
			_, err = r.DocumentFor(nil, []byte("another"), sound.At)
			require.ErrorIs(t, err, queue.ErrUnavailable)
			infos, err := r.Segments()
			require.NoError(t, err)
			require.Len(t, infos, 1, "a quarantined file is not a segment")

			f, err := mem.Create(segment.Path(queuetest.Dir, 2, suffix))
			require.NoError(t, err)
			_, err = f.Write(whole)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			queuetest.RequireDocuments(t, r, items)
		})
	}
}
