package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/bench/internal/results"
)

func TestCurrentKeepsNewestResults(t *testing.T) {
	result := func(table, settings, contestant, commit string, round, minute int) results.Result {
		return results.Result{
			Key:    results.Key{Table: table, Settings: settings, Contestant: contestant, Phase: "fillrandom", Round: round},
			Commit: commit, Date: time.Date(2026, 11, 21, 10, minute, 0, 0, time.UTC),
		}
	}
	other := result("documents", "made=5", "docstore", "old", 1, 0)
	smaller := result("article", "num=1000", "docstore", "old", 1, 1)
	oldOurs := result("article", "num=10000", "docstore", "old", 2, 2)
	oldRival := result("article", "num=10000", "pebble", "old", 1, 2)
	newOurs := result("article", "num=10000", "docstore", "new", 1, 9)
	small, large := result("growth", "num=10 reads=1", "docstore", "old", 1, 3), result("growth", "num=99 reads=1", "docstore", "old", 1, 3)
	largeAgain := result("growth", "num=99 reads=5", "docstore", "old", 1, 4)
	short, long := result("shapes", "num=10 key_size=16 prefix_size=0", "docstore", "old", 1, 5), result("shapes", "num=10 key_size=40 prefix_size=0", "docstore", "old", 1, 5)
	alike, alikeAgain := result("shapes", "num=10 key_size=40 prefix_size=32", "docstore", "old", 1, 5), result("shapes", "num=99 key_size=40 prefix_size=32", "docstore", "old", 1, 6)
	gone := result("a table of old", "", "docstore", "new", 1, 9)
	all := []results.Result{newOurs, other, smaller, oldOurs, oldRival, small, large, largeAgain, short, long, alike, alikeAgain, gone}
	require.Equal(t, []results.Result{newOurs, other, oldRival, small, largeAgain, short, long, alikeAgain}, current(all))
	require.Len(t, all, 13, "current must not change its argument")
}

// TestFullTableReplacesQuickOne merges a full article table with quick results: the goals are
// then computed for 10,000,000 entries.
func TestFullTableReplacesQuickOne(t *testing.T) {
	article := func(size, contestant, phase string, round, minute int, rate float64) results.Result {
		settings := map[string]string{"quick": "num=1000000 reads=200000", "full": "num=10000000 reads=1000000"}[size]
		return results.Result{
			Key:  results.Key{Table: "article", Settings: settings, Contestant: contestant, Phase: phase, Round: round},
			Date: time.Date(2026, 11, 21, 10, minute, 0, 0, time.UTC), Size: size, Figures: map[string]float64{"ops/s": rate},
		}
	}
	quick := []results.Result{article("quick", "docstore", "fillrandom", 1, 0, 1e6), article("quick", "pebble", "fillrandom", 1, 0, 5e5), article("quick", "kyoto", "fillrandom", 1, 0, 9e5)}
	calls := results.Result{Key: results.Key{Table: "ladder"}, Date: quick[0].Date, Size: "quick"}
	full := []results.Result{article("full", "docstore", "fillrandom", 1, 1, 1.2e6), article("full", "pebble", "fillrandom", 1, 1, 3e5)}
	s := set{current(append(append(quick, calls), full...))}
	figure, ok := beats("article", "fillrandom", "ops/s", "docstore", []string{"pebble", "kyoto"})(s)
	require.True(t, ok)
	require.Equal(t, 4.0, figure)
	_, ok = only("num=10000000", of("article", "docstore", "fillrandom", "ops/s"))(s)
	require.True(t, ok)
	_, ok = only("num=1000000", of("article", "docstore", "fillrandom", "ops/s"))(s)
	require.False(t, ok)
	require.Equal(t, []string{"docstore", "pebble"}, s.contestants("article"))
	require.Equal(t, "full", s.size())
}
