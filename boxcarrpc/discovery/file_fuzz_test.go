package discovery

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzFile: the servers of a list that is accepted have valid addresses and different numbers
// below Snapshot.Numbers.
func FuzzFile(f *testing.F) {
	f.Add([]byte("be-1:7070 # first\n\nbe-2:7070 number=7 weight=0.5\n"))
	f.Add([]byte("be-1:7070 number=65536"))
	f.Add([]byte("be-1:7070 weight=NaN"))
	f.Fuzz(func(t *testing.T, content []byte) {
		s, err := Parse(bytes.NewReader(content))
		if err != nil {
			return
		}
		seen := map[int]bool{}
		for _, server := range s.Servers {
			require.NoError(t, CheckAddress(server.Address))
			require.False(t, seen[server.Number])
			require.GreaterOrEqual(t, server.Number, 0)
			require.Less(t, server.Number, s.Numbers)
			require.GreaterOrEqual(t, server.Weight, 0.0)
			seen[server.Number] = true
		}
	})
}
