package testseed

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSeedFlagRepeatsARun(t *testing.T) {
	defer func(before uint64) { *seedFlag = before }(*seedFlag)
	*seedFlag = 0
	require.NotEqual(t, Seed(t), Seed(t), "another one each time")
	*seedFlag = 7
	require.Equal(t, uint64(7), Seed(t))
	require.Equal(t, Rand(t).Uint64(), Rand(t).Uint64())
}
