package queue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// TestSealedNameIsDurable: once Seal has returned, a loss of power leaves the segment
// under the name that rsync copies.
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
