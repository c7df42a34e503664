package server

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMergeRate(t *testing.T) {
	require.Nil(t, mergeLimiter(Options{}.MergeRate), "the default is no limit")
	l := mergeLimiter(5 << 20)
	require.EqualValues(t, 5<<20, l.Limit())
	require.Equal(t, mergeBurst, l.Burst())
}
