package column

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/docservice/placement"
	"docstore/internal/crashtest"
	"docstore/internal/testseed"
)

var epoch = time.Unix(1_700_000_000, 0)

func after(d time.Duration) time.Time { return epoch.Add(d) }

func TestDecide(t *testing.T) {
	m := &placement.Map{Shards: []placement.Place{
		{Column: "a"}, {Column: "b", Next: "a"}, {Column: "b", Previous: "a"}, {Column: "b"}, {}, {Column: "a", Next: "b"}, {Column: "b", Previous: "a"},
	}}
	present := map[int]shard{
		2: {}, 3: {moved: epoch}, 4: {}, 5: {moved: epoch}, 6: {moved: after(time.Minute)},
	}
	a := decide(m, "a", present, disk{}, after(time.Hour), time.Hour)
	require.Equal(t, actions{open: []int{0, 1}, leave: []int{2}, remove: []int{3}, stay: []int{5}, expect: []int{0, 5}}, a)
	require.Equal(t, actions{expect: []int{1, 2, 3, 6}, open: []int{1, 2, 3, 5, 6}}, decide(m, "b", nil, disk{}, epoch, time.Hour))
	require.Equal(t, actions{}, decide(m, "c", map[int]shard{4: {}}, disk{}, epoch, time.Hour), "a shard without a column is not removed")
}

// Above the limit the files of moved shards are removed, the oldest move first, and never
// those of assigned shards.
func TestDecideUnderPressure(t *testing.T) {
	m := &placement.Map{Shards: []placement.Place{{Column: "b"}, {Column: "b"}, {Column: "b"}, {Column: "a"}}}
	present := map[int]shard{
		0: {moved: after(2), bytes: 10}, 1: {moved: after(1), bytes: 10}, 2: {moved: after(3), bytes: 10}, 3: {bytes: 100},
	}
	for _, one := range []struct {
		used, limit int64
		want        []int
	}{
		{used: 850, limit: 1000}, {used: 851, limit: 1000, want: []int{1}}, {used: 861, limit: 1000, want: []int{1, 0}},
		{used: 2000, limit: 1000, want: []int{1, 0, 2}}, {used: 2000},
	} {
		require.Equal(t, one.want, decide(m, "a", present, disk{one.used, one.limit}, after(10), time.Hour).remove, fmt.Sprint(one))
	}
}

// Whatever maps a server sees: a shard is not removed while the map assigns it to the column or
// to none, nor before it was kept for the time since the move, and each assigned shard is here.
func TestRandomMaps(t *testing.T) {
	const shards, some, all = 6, 300, 30_000
	seeds := testseed.PCG(t)
	names := []string{"", "a", "b"}
	for range crashtest.Share(some, all) {
		r := rand.New(rand.NewPCG(seeds.Uint64(), 1))
		present, now, left := map[int]shard{}, epoch, map[int]time.Time{}
		m := &placement.Map{Shards: make([]placement.Place, shards)}
		for range 30 {
			p := &m.Shards[r.IntN(shards)]
			*p = placement.Place{Column: names[r.IntN(3)], Next: names[r.IntN(3)]}
			now = now.Add(time.Duration(r.IntN(30)) * time.Minute)
			a := decide(m, "a", present, disk{}, now, time.Hour)
			for _, i := range a.open {
				require.NotContains(t, present, i)
				present[i] = shard{}
			}
			for _, i := range a.stay {
				present[i] = shard{}
			}
			for _, i := range a.leave {
				present[i] = shard{moved: now}
				left[i] = now
			}
			for _, i := range a.remove {
				require.GreaterOrEqual(t, now.Sub(left[i]), time.Hour)
				delete(present, i)
			}
			for i, p := range m.Shards {
				one, here := present[i]
				if mine := p.Column == "a" || p.Next == "a" && p.Column != ""; mine {
					require.True(t, here && one.moved.IsZero())
				}
				require.Equal(t, p.Column == "a", slices.Contains(a.expect, i))
			}
			again := decide(m, "a", present, disk{}, now, time.Hour)
			require.Empty(t, slices.Concat(again.open, again.stay, again.leave, again.remove), "the actions are complete")
		}
	}
}

func TestChoose(t *testing.T) {
	require.Empty(t, choose(nil, "x"))
	require.Equal(t, "b", choose(map[string]map[int]string{"a": {0: "p"}, "b": {}, "c": {}}, "x"))
	require.Equal(t, "a", choose(map[string]map[int]string{"a": {0: "p", 1: "x"}, "b": {}}, "x"), "the address has a row")
	m := &placement.Map{Shards: []placement.Place{{Column: "b"}, {Column: "c", Next: "d"}, {}}}
	states := []placement.ServerState{{Column: "e"}, {Column: "b"}}
	require.Equal(t, []string{"b", "d", "e"}, columns(m, states, []string{"c"}))
	require.Empty(t, columns(nil, nil, nil))
}
