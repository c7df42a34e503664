//go:build !race

// Under the race detector a sync.Pool drops objects at random.

package collection

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/vfs"
)

// A fetch allocates only to grow dst.
func TestGetAllocatesNothing(t *testing.T) {
	f := newFixture(t, vfs.OS, t.TempDir())
	f.putMany("a", 100)
	f.seal()
	c := f.ready()
	var dst []byte
	id := []byte("a-50")
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		var err error
		if dst, err = c.Get(dst[:0], id); err != nil {
			t.Fatal(err)
		}
	}))
	require.Equal(t, documentOf("a-50"), string(dst))
}
