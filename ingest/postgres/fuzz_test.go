package postgres

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzHistory: each line of a history that is accepted is one branch.
func FuzzHistory(f *testing.F) {
	f.Add([]byte("1\t0/3000000\tno recovery target specified\n\n2\t0/5000000\tbefore 2026 # comment\n"))
	f.Add([]byte("1\n"))
	f.Add([]byte("4294967296 0/1\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		history, err := parseHistory(content)
		if err != nil {
			require.Nil(t, history)
			return
		}
		twice, err := parseHistory(slices.Concat(content, []byte("\n"), content))
		require.NoError(t, err)
		require.Len(t, twice, 2*len(history))
	})
}

// FuzzKey: the values of a key that is accepted are within it.
func FuzzKey(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x014\x02ab\x00"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"))
	f.Fuzz(func(t *testing.T, key []byte) {
		values, err := parseKey(key)
		if err != nil {
			return
		}
		bytes := 0
		for _, v := range values {
			bytes += 1 + len(v)
		}
		require.LessOrEqual(t, bytes, len(key))
	})
}
