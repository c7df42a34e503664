package histogram

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuantiles(t *testing.T) {
	gen := rand.New(rand.NewPCG(1, 2))
	var h, other Histogram
	var all []float64
	for i := range 100_000 {
		x := math.Exp(gen.NormFloat64()*2 + 15)
		all = append(all, x)
		if i%2 == 0 {
			h.Add(time.Duration(x))
		} else {
			other.Add(time.Duration(x))
		}
	}
	h.Merge(&other)
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.99, 0.999} {
		require.InEpsilon(t, all[int(q*float64(len(all)))], float64(h.Quantile(q)), 0.03)
	}
	require.Zero(t, new(Histogram).Quantile(0.5))
	require.Zero(t, new(Histogram).Mean())
}
