package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMergeRate(t *testing.T) {
	var o Options
	require.Nil(t, mergeLimiter(o.MergeRate), "the default is no limit")
	require.NoError(t, o.MergeRate.Set("5MiB"))
	l := mergeLimiter(o.MergeRate)
	require.EqualValues(t, 5<<20, l.Limit())
	require.Equal(t, mergeBurst, l.Burst())
}
