package core

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSilence(t *testing.T) {
	const timeout, keepAlive = 1000, 15_000
	type step struct {
		now      int64
		received uint64
		owes     bool
		want     Verdict
	}
	for name, steps := range map[string][]step{
		"idle, then asked, then heard": {
			{14_999, 0, false, Fine}, {15_000, 0, false, Ask}, {15_050, 0, false, Fine}, {15_090, 8, false, Fine},
			{30_080, 8, false, Fine}, {30_090, 8, false, Ask},
		},
		"idle, asked, and dead": {
			{15_000, 0, false, Ask}, {15_100, 0, false, Suspect}, {15_500, 0, false, Fine}, {16_000, 0, false, Dead},
		},
		"the silence before a request does not count": {
			{10_000, 0, true, Fine}, {10_099, 0, true, Fine}, {10_100, 0, true, Suspect},
		},
		"a slow handler answers the ping": {
			{100, 0, true, Fine}, {200, 0, true, Suspect}, {210, 16, true, Well}, {300, 16, true, Fine},
			{310, 16, true, Suspect}, {400, 32, true, Well},
		},
		"a request that is never answered": {
			{100, 0, true, Fine}, {200, 0, true, Suspect}, {1099, 0, true, Fine}, {1100, 0, true, Dead},
		},
		"answered without the ping's answer": {
			{100, 0, true, Fine}, {200, 0, true, Suspect}, {250, 9, false, Well}, {300, 9, false, Fine},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSilence(0, timeout, keepAlive)
			for _, x := range steps {
				require.Equal(t, x.want, s.Step(x.now, x.received, x.owes), "at %d", x.now)
			}
		})
	}
}
