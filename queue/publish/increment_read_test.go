package publish

import (
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/errors"
	"github.com/stretchr/testify/require"
)

func TestFindLast(t *testing.T) {
	for last := range uint64(5000) {
		var asked atomic.Int64
		found, err := findLast(func(number uint64) (bool, error) {
			asked.Add(1)
			require.NotZero(t, number)
			return number <= last, nil
		})
		require.NoError(t, err)
		require.Equal(t, last, found)
		require.LessOrEqual(t, asked.Load(), int64(2*probePowers+4*probes))
	}
	failure := errors.New("failure")
	_, err := findLast(func(number uint64) (bool, error) { return number < 100, failure })
	require.ErrorIs(t, err, failure)
}
