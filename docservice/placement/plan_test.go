package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
	"docstore/internal/testseed"
)

// The numbers of random histories: in general, and with make soak.
const (
	someHistories = 3_000
	allHistories  = 1_000_000
)

// history is a collection whose shards and columns change at random.
type history struct {
	rng     *rand.Rand
	shards  []Shard
	columns []Column
	next    int // number of the next column
	tight   bool
}

func newHistory(rng *rand.Rand) *history {
	h := &history{rng: rng, tight: rng.IntN(3) == 0}
	h.shards = make([]Shard, 1<<rng.IntN(8))
	skew := rng.IntN(3)
	for i := range h.shards {
		switch skew {
		case 0:
			h.shards[i].Bytes = 1000
		case 1:
			h.shards[i].Bytes = rng.Int64N(2000)
		default:
			h.shards[i].Bytes = 1 << rng.IntN(16)
		}
	}
	for range 1 + rng.IntN(12) {
		h.addColumn()
	}
	return h
}

func (h *history) total() (bytes, heaviest int64) {
	for _, s := range h.shards {
		bytes += max(s.Bytes, 1)
		heaviest = max(heaviest, s.Bytes, 1)
	}
	return bytes, heaviest
}

func (h *history) addColumn() {
	bytes, _ := h.total()
	c := Column{Name: fmt.Sprintf("c%03d", h.next), Limit: 100 * bytes, Weight: 1}
	if h.rng.IntN(4) == 0 {
		c.Weight = 1 + h.rng.IntN(4)
	}
	if h.tight {
		c.Limit = h.rng.Int64N(bytes + 1)
	}
	h.next++
	h.columns = append(h.columns, c)
}

// step changes the columns or the sizes.
func (h *history) step() {
	i := h.rng.IntN(len(h.columns))
	switch h.rng.IntN(5) {
	case 0:
		h.addColumn()
	case 1:
		if len(h.columns) > 1 {
			h.columns = slices.Delete(h.columns, i, i+1) // its machines are lost
		}
	case 2:
		h.columns[i].Weight = 0
	case 3:
		h.columns[i].Weight = 1
	default:
		for i := range h.shards {
			h.shards[i].Bytes = h.shards[i].Bytes*9/10 + h.rng.Int64N(h.shards[i].Bytes/3+2)
		}
	}
}

// loads returns the bytes by column.
func (h *history) loads() map[string]int64 {
	loads := make(map[string]int64)
	for _, s := range h.shards {
		loads[s.Column] += max(s.Bytes, 1)
	}
	return loads
}

// shares returns the exact shares of the columns, if no limit is in the way.
func (h *history) shares() map[string]float64 {
	bytes, _ := h.total()
	weights, shares := 0, make(map[string]float64)
	for _, c := range h.columns {
		weights += c.Weight
	}
	for _, c := range h.columns {
		shares[c.Name] = float64(bytes) * float64(c.Weight) / float64(max(weights, 1))
	}
	return shares
}

// apply checks and applies a plan.
func (h *history) apply(t *testing.T, moves []Move) {
	limits := make(map[string]Column)
	for _, c := range h.columns {
		limits[c.Name] = c
	}
	loads := h.loads()
	for _, m := range moves {
		require.Equal(t, h.shards[m.Shard].Column, m.From)
		require.Equal(t, h.shards[m.Shard].Bytes, m.Bytes)
		bytes := max(m.Bytes, 1)
		loads[m.From] -= bytes
		loads[m.To] += bytes
		require.LessOrEqual(t, loads[m.To], limits[m.To].Limit, "the limit of %s", m.To)
		require.Positive(t, limits[m.To].Weight, "a drained column receives nothing")
		h.shards[m.Shard].Column = m.To
	}
	for i, s := range h.shards {
		c, exists := limits[s.Column]
		require.True(t, exists, "shard %d is in column %q", i, s.Column)
		require.LessOrEqual(t, loads[s.Column], c.Limit)
	}
}

// TestRandomHistories changes collections at random and checks each plan: limits, balance,
// moved bytes, and that a second plan is empty.
func TestRandomHistories(t *testing.T) {
	rng := testseed.Rand(t)
	for range crashtest.Share(someHistories, allHistories) {
		h := newHistory(rng)
		for range 1 + rng.IntN(8) {
			before, shares := h.loads(), h.shares()
			existed := slices.Clone(h.shards)
			moves, err := Plan(h.shards, h.columns)
			again, errAgain := Plan(h.shards, h.columns)
			require.Equal(t, moves, again, "the result depends on the input only")
			require.Equal(t, err == nil, errAgain == nil)
			if err != nil {
				require.ErrorIs(t, err, ErrNoPlan)
				h.step()
				continue
			}
			h.apply(t, moves)
			if !h.tight {
				h.checkBalance(t, shares)
				h.checkMoved(t, existed, moves, before, shares)
				again, err = Plan(h.shards, h.columns)
				require.NoError(t, err)
				require.Empty(t, again, "moves after the moves")
			}
			h.step()
		}
	}
}

func (h *history) checkBalance(t *testing.T, shares map[string]float64) {
	_, heaviest := h.total()
	loads := h.loads()
	for _, c := range h.columns {
		require.InDelta(t, shares[c.Name], loads[c.Name], float64(heaviest)+1, "column %s", c.Name)
	}
}

// checkMoved compares the moved bytes with those that exact shares need.
func (h *history) checkMoved(t *testing.T, existed []Shard, moves []Move, before map[string]int64, shares map[string]float64) {
	_, heaviest := h.total()
	var ideal float64
	for _, c := range h.columns {
		ideal += max(shares[c.Name]-float64(before[c.Name]), 0)
	}
	var moved int64
	for _, m := range moves {
		require.Equal(t, existed[m.Shard].Column, m.From)
		moved += max(m.Bytes, 1)
	}
	require.LessOrEqual(t, float64(moved), ideal+float64(heaviest)+1, "moved bytes")
}

func TestNoFeasiblePlan(t *testing.T) {
	for name, c := range map[string]struct {
		shards  []Shard
		columns []Column
	}{
		"no column":                 {[]Shard{{Bytes: 1}}, nil},
		"all columns are drained":   {[]Shard{{Bytes: 1, Column: "a"}}, []Column{{Name: "a", Limit: 10}}},
		"a shard above every limit": {[]Shard{{Bytes: 11}}, []Column{{Name: "a", Limit: 10, Weight: 1}}},
		"all columns are full":      {[]Shard{{Bytes: 6}, {Bytes: 6}, {Bytes: 6}}, []Column{{Name: "a", Limit: 10, Weight: 1}, {Name: "b", Limit: 10, Weight: 1}}},
		"a full column, and no room elsewhere": {
			[]Shard{{Bytes: 8, Column: "a"}, {Bytes: 8, Column: "a"}, {Bytes: 8, Column: "b"}},
			[]Column{{Name: "a", Limit: 10, Weight: 1}, {Name: "b", Limit: 10, Weight: 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			moves, err := Plan(c.shards, c.columns)
			require.ErrorIs(t, err, ErrNoPlan)
			require.ErrorContains(t, err, "add a column, or raise a limit")
			require.Empty(t, moves)
		})
	}
}

func TestInvalidInput(t *testing.T) {
	one := []Shard{{Bytes: 1}}
	for name, c := range map[string]struct {
		shards  []Shard
		columns []Column
	}{
		"two columns with one name": {one, []Column{{Name: "a", Limit: 9, Weight: 1}, {Name: "a", Limit: 9, Weight: 1}}},
		"a column without a name":   {one, []Column{{Limit: 9, Weight: 1}}},
		"a negative limit":          {one, []Column{{Name: "a", Limit: -1, Weight: 1}}},
		"a limit that is too large": {one, []Column{{Name: "a", Limit: MaxBytes + 1, Weight: 1}}},
		"a negative weight":         {one, []Column{{Name: "a", Limit: 9, Weight: -1}}},
		"a negative size":           {[]Shard{{Bytes: -1}}, nil},
		"a size that is too large":  {[]Shard{{Bytes: MaxBytes}}, nil},
		"too many shards":           {make([]Shard, MaxShards+1), nil},
		"too many columns":          {nil, make([]Column, MaxColumns+1)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Plan(c.shards, c.columns)
			require.ErrorContains(t, err, "placement: ")
			require.NotErrorIs(t, err, ErrNoPlan)
		})
	}
}

// Shards of unknown size, of a collection that has just been published, are divided evenly between
// columns whose disks differ a little.
func TestUnknownSizes(t *testing.T) {
	columns := []Column{{Name: "a", Limit: 1 << 30, Weight: 1000}, {Name: "b", Limit: 1 << 30, Weight: 999}}
	moves, err := Plan(make([]Shard, 4), columns)
	require.NoError(t, err)
	received := map[string]int{}
	for _, m := range moves {
		received[m.To]++
	}
	require.Equal(t, map[string]int{"a": 2, "b": 2}, received)
}
