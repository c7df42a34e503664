package bloom

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// TestPages: Pages reports for each page the saved or savable lookups and whether it is
// resident.
func TestPages(t *testing.T) {
	keys := randomKeys(testseed.Rand(t), 20_000)
	f := open(t, build(&Options{PageBytes: 4096}, keys))
	m := NewManager(f.index.memory() + 2*4096)
	require.NoError(t, m.Update(f))
	const lookups = 1000
	for range lookups { // between the same two keys, so on the same page
		missing := append(slices.Clone(keys[len(keys)-2]), 0)
		if mayContain(f, missing) {
			f.Missed(missing)
		}
	}
	_, err := m.Tick(time.Unix(1, 0))
	require.NoError(t, err)
	pages := m.Pages(nil, f)
	require.Len(t, pages, f.Stats().Pages)
	require.Greater(t, len(pages), 3)
	resident := 0
	for i, p := range pages {
		require.EqualValues(t, f.index.entries[i].bytes, p.Bytes)
		if p.Resident {
			resident++
		}
		if i < len(pages)-1 {
			require.Less(t, p.Usefulness, 10.0)
		}
	}
	require.Equal(t, f.Stats().ResidentPages, resident)
	last := pages[len(pages)-1]
	require.True(t, last.Resident)
	require.InDelta(t, lookups, last.Usefulness, lookups/10)
}
