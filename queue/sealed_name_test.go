package queue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// TestSealedNameIsDurable: after Seal has returned, a power loss leaves the segment under
// its final name, which rsync copies.
func TestSealedNameIsDurable(t *testing.T) {
	mem := vfs.NewMem()
	w, err := OpenWriter(queueDir, testOptions(mem))
	require.NoError(t, err)
	at, err := w.Append([]byte("id"), []byte("document"))
	require.NoError(t, err)
	require.NoError(t, w.Seal())
	_, err = mem.CrashClone(vfs.KeepSynced).Stat(segmentPath(queueDir, at.Segment, sealedSuffix))
	require.NoError(t, err)
	require.NoError(t, w.Close())
}
