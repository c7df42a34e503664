package shard

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzLayout: a layout that is accepted is valid, and its encoding is accepted as the same.
func FuzzLayout(f *testing.F) {
	seed := layoutFile{Format: layoutFormat, Layout: Layout{Shards: 16, Seed: 5}}
	seed.CRC = seed.sum()
	f.Add(append(seed.encode(), '\n'))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		l, err := parseLayout(content)
		if err != nil {
			return
		}
		require.NoError(t, l.Check())
		again := layoutFile{Format: layoutFormat, Layout: l}
		again.CRC = again.sum()
		got, err := parseLayout(again.encode())
		require.NoError(t, err)
		require.Equal(t, l, got)
	})
}
