package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/bench/internal/results"
)

func TestNewerResultsTakeThePlaceOfOlderOnes(t *testing.T) {
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
	all := []results.Result{newOurs, other, smaller, oldOurs, oldRival, small, large, largeAgain}
	require.Equal(t, []results.Result{newOurs, other, oldRival, small, largeAgain}, current(all))
	require.Len(t, all, 8, "it is left as it was")
}
