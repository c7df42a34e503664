package queue

import (
	"testing"
	"time"

	"docstore/internal/vfs"

	"github.com/stretchr/testify/require"
)

// TestListingIsCurrent checks when a cached listing may be used.
func TestListingIsCurrent(t *testing.T) {
	changed := time.UnixMilli(1_700_000_000_000)
	info := vfs.Info{ModTime: changed, ID: vfs.FileID{Inode: 1}}
	later := info
	later.ModTime = changed.Add(1)
	for _, c := range []struct {
		name             string
		listed           time.Duration // after the change
		info             vfs.Info
		age              time.Duration
		current, settled bool
	}{
		{"long after the change", time.Minute, info, 0, true, true},
		{"as old as it may be", time.Minute, info, listingMaxAge - 1, true, true},
		{"too old", time.Minute, info, listingMaxAge, false, true},
		{"changed since", time.Minute, later, 0, false, true},
		{"in the tick of the change", timestampTick - 1, info, 0, true, false},
		{"in the next tick", timestampTick, info, 0, true, true},
		{"before the change, by a clock that is slow", -time.Second, info, 0, true, false},
		{"listed in the future", time.Minute, info, -1, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &cachedListing{info: info, listed: changed.Add(c.listed)}
			require.Equal(t, c.current, k.current(c.info, k.listed.Add(c.age)))
			require.Equal(t, c.settled, k.settled())
		})
	}
}
