package queue_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"docstore/queue"
	"docstore/queue/internal/segment"

	"github.com/stretchr/testify/require"
)

// TestQuarantinedFile: undamaged documents of a quarantined file are served until the
// file is copied again, and not after.
func TestQuarantinedFile(t *testing.T) {
	for _, suffix := range []string{segment.SealedSuffix, segment.OpenSuffix} {
		t.Run(suffix, func(t *testing.T) {
			files, items := smallQueue(t, "none", suffix == segment.SealedSuffix)
			name := filepath.Base(segment.Path("", 2, suffix))
			damaged := bytes.Clone(files[name])
			sound, last := items[5], items[len(items)-1]
			require.EqualValues(t, 2, sound.at.Segment)
			damaged[sound.at.Block] ^= 1 // the checksum of a table, which a fetch does not need
			damaged[bytes.LastIndex(damaged, []byte(last.document))] ^= 1

			whole := files[name]
			delete(files, name)
			files[name+queue.QuarantineSuffix] = damaged
			mem := memWith(t, files)
			r := openReader(t, mem)
			requireDocuments(t, r, []item{sound})
			_, err := r.DocumentFor(nil, []byte(last.id), last.at)
			require.ErrorIs(t, err, queue.ErrUnavailable)
			_, err = r.DocumentFor(nil, []byte("another"), sound.at)
			require.ErrorIs(t, err, queue.ErrUnavailable)
			infos, err := r.Segments()
			require.NoError(t, err)
			require.Len(t, infos, 1, "a quarantined file is not a segment")

			f, err := mem.Create(segment.Path(queueDir, 2, suffix))
			require.NoError(t, err)
			_, err = f.Write(whole)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			requireDocuments(t, r, items)
		})
	}
}
