package files

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRotations(t *testing.T) {
	for name, want := range map[string]rotation{
		"app.log.1": {number: 1}, "app.log.12.gz": {number: 12}, "app.log-20261126": {date: "-20261126"},
		"app.log.2026-11-26T08:00Z.zst": {date: ".2026-11-26T08:00Z"}, "app-2026-11-26.log": {date: "-2026-11-26"},
		"app.1.log": {number: 1},
	} {
		got, ok := rotationOf(name, "app.log")
		require.True(t, ok, name)
		require.Equal(t, want, got, name)
	}
	for _, name := range []string{"app.log", "app.log.old", "app.log.gz", "apple.log.1", "app-1.txt", "app.log.1.tmp", "app.log~1"} {
		_, ok := rotationOf(name, "app.log")
		require.False(t, ok, name)
	}
	require.True(t, rotation{number: 1}.after(rotation{number: 2}))
	require.False(t, rotation{number: 2}.after(rotation{number: 2}))
	require.True(t, rotation{date: "-20261126"}.after(rotation{date: "-20261125"}))
	require.False(t, rotation{date: "-20261126"}.after(rotation{number: 1}))
	require.False(t, rotation{number: 1}.after(rotation{date: "-20261126"}))
}
