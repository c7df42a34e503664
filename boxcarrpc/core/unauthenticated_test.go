package core

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/testseed"
)

// A client with many connections loses its oldest one, also to other clients.
func TestUnauthenticatedConnectionsReplaceTheOldestOfTheMost(t *testing.T) {
	u := NewUnauthenticated[string, int](4)
	for conn, client := range []string{"flood", "probe", "flood", "flood"} {
		_, full := u.Add(client, conn)
		require.False(t, full)
	}
	for conn, want := range map[int]int{4: 0} {
		replaced, full := u.Add("prometheus", conn)
		require.True(t, full)
		require.Equal(t, want, replaced)
	}
	for conn := 5; conn < 1000; conn++ {
		replaced, full := u.Add("flood", conn)
		require.True(t, full)
		require.NotContains(t, []int{1, 4}, replaced, "the probe and Prometheus stay")
	}
	require.Equal(t, 2, u.CountOf("flood"))
	require.Equal(t, 4, u.Len())
}

// Random steps have the results of a list that is searched.
func TestUnauthenticatedIsAModel(t *testing.T) {
	type entry struct{ client, conn int }
	rng := testseed.Rand(t)
	for range 50 {
		limit := 1 + rng.IntN(12)
		u := NewUnauthenticated[int, int](limit)
		var model []entry // the oldest first
		count := func(client int) (n int) {
			for _, e := range model {
				if e.client == client {
					n++
				}
			}
			return n
		}
		// removed requires that a connection that was removed is the oldest of a client
		// with the most, and removes it from the model.
		removed := func(conn int) {
			i := slices.IndexFunc(model, func(e entry) bool { return e.conn == conn })
			require.GreaterOrEqual(t, i, 0)
			client := model[i].client
			require.False(t, slices.ContainsFunc(model[:i], func(e entry) bool { return e.client == client }), "it is the oldest of its client")
			for _, e := range model {
				require.GreaterOrEqual(t, count(client), count(e.client))
			}
			model = slices.Delete(model, i, i+1)
		}
		for conn := range 300 {
			client := rng.IntN(1 + rng.IntN(8))
			switch rng.IntN(8) {
			case 0:
				if len(model) > 0 {
					i := rng.IntN(len(model))
					require.True(t, u.Remove(model[i].conn))
					require.False(t, u.Remove(model[i].conn))
					model = slices.Delete(model, i, i+1)
				}
			case 1:
				victim, ok := u.Evict()
				require.Equal(t, len(model) > 0, ok)
				if ok {
					removed(victim)
				}
			case 2:
				victim, ok := u.EvictOf(client)
				i := slices.IndexFunc(model, func(e entry) bool { return e.client == client })
				require.Equal(t, i >= 0, ok)
				if ok {
					require.Equal(t, model[i].conn, victim)
					model = slices.Delete(model, i, i+1)
				}
			default:
				victim, full := u.Add(client, conn)
				require.Equal(t, len(model) == limit, full)
				if full {
					removed(victim)
				}
				model = append(model, entry{client, conn})
			}
			require.Equal(t, len(model), u.Len())
			require.Equal(t, count(client), u.CountOf(client))
		}
		for u.Len() > 0 {
			victim, ok := u.Evict()
			require.True(t, ok)
			removed(victim)
		}
		require.Empty(t, u.clients)
	}
}
