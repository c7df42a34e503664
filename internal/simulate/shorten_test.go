package simulate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShorten(t *testing.T) {
	var c Config
	for i := range 20 {
		c.Faults = append(c.Faults, Fault{Kind: itoa(i)})
	}
	runs := 0
	shortest := shorten(c, func(c Config) bool {
		runs++
		found := 0
		for _, f := range c.Faults {
			if f.Kind == "3" || f.Kind == "17" {
				found++
			}
		}
		return found == 2
	})
	require.Equal(t, []Fault{{Kind: "3"}, {Kind: "17"}}, shortest.Faults)
	require.Less(t, runs, 60)
}
