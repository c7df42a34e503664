package core

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConnections(t *testing.T) {
	for _, c := range []struct {
		lanes int
		bytes int64
		want  int
	}{
		{0, 0, 1},
		{1, 1 << 20, 1},
		{4, 1 << 20, 1},
		{8, 100, 1},
		{8, 64 << 10, 2},
		{9, 100, 2},
		{64, 0, 2},
		{64, 4 << 10, 2},
		{64, 5 << 10, 3},
		{64, 16 << 10, 8},
		{64, 64 << 10, 16},
		{64, 16 << 20, 16},
		{16, 64 << 10, 4},
		{1024, 1 << 10, 8},
	} {
		require.Equal(t, c.want, Connections(c.lanes, c.bytes), "%+v", c)
	}
	for lanes := range 100 {
		for bytes := int64(0); bytes < 1<<21; bytes += 5000 {
			n := Connections(lanes, bytes)
			require.LessOrEqual(t, n, Connections(lanes+1, bytes))
			require.LessOrEqual(t, n, Connections(lanes, bytes+5000))
			require.LessOrEqual(t, n, max(1, lanes))
		}
	}
}
