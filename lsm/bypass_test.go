package lsm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHitsBypassFilters reads existing keys until filters are bypassed, then missing
// keys: none is found, and few cause a table search.
func TestHitsBypassFilters(t *testing.T) {
	db := open(t, t.TempDir(), nil)
	const n = 10_000
	for i := range n {
		set(t, db, fmt.Sprintf("key%05d", i), fmt.Sprint(i))
	}
	require.NoError(t, db.Flush())
	require.NoError(t, db.WaitIdle(t.Context()))
	loadFilters(t, db)
	get := func(i int, key string, found bool) {
		got, err := db.Get(nil, []byte(key))
		if !found {
			require.ErrorIs(t, err, ErrNotFound)
			return
		}
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), string(got))
	}
	multiGet := func(i int, key string, found bool) {
		require.NoError(t, db.MultiGet([][]byte{[]byte(key)}, func(_ int, value []byte, err error) error {
			if !found {
				require.ErrorIs(t, err, ErrNotFound)
				return nil
			}
			require.Equal(t, fmt.Sprint(i), string(value))
			return err
		}))
	}
	for _, look := range []func(int, string, bool){get, multiGet} {
		before := db.Stats().Tables[0].Filter
		for i := range n {
			look(i, fmt.Sprintf("key%05d", i), true)
		}
		for i := range n {
			look(i, fmt.Sprintf("key%05d.", i), false)
		}
		after := db.Stats().Tables[0].Filter
		require.Greater(t, after.Bypassed, before.Bypassed)
		require.Less(t, after.Missed-before.Missed, uint64(n/10))
	}
}
