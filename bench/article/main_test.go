package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/bench/internal/results"
)

// TestRulesAsCounted has the article's numbers, but for the one that its own rule does
// not give: after 100 flushes it says 15.2 million, and the rule writes 37.6.
func TestRulesAsCounted(t *testing.T) {
	for _, test := range []struct {
		rule, flushes, written, indexes int
	}{
		{0, 4, 800_000, 1}, {1, 4, 1_000_000, 1}, {2, 4, 400_000, 4},
		{0, 100, 37_600_000, 3}, {1, 100, 505_000_000, 1}, {2, 100, 10_000_000, 100},
	} {
		written, indexes := rules[test.rule].steps(test.flushes, articleJobs)
		require.Equal(t, test.written, written, rules[test.rule].name)
		require.Equal(t, test.indexes, indexes, rules[test.rule].name)
	}
}

func TestRun(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results.ndjson")
	args := []string{
		"-memtable", "65536", "-flushes", "10", "-reads", "100", "-documents", "50", "-per_file", "20", "-duration", "10ms", "-rounds", "1",
		"-results", name,
	}
	require.NoError(t, run(args))
	all, err := results.Read(name)
	require.NoError(t, err)
	require.Len(t, all, 6+3+2)
	require.Equal(t, all[8].Figures["flushes"], all[8].Figures["tables"], "always write")
	require.GreaterOrEqual(t, all[8].Figures["flushes"], 10.0)
	require.InDelta(t, 1, all[8].Figures["written times"], 0.01)
	require.Equal(t, 1.0, all[7].Figures["tables"], "always merge")
	require.NoError(t, run(args))
	again, err := results.Read(name)
	require.NoError(t, err)
	require.Equal(t, all, again, "nothing is measured again")
}

func TestAnUpdateKeepsTheOthers(t *testing.T) {
	f := &fileStore{dir: t.TempDir(), perFile: 3}
	require.NoError(t, f.write(0, []byte("a\nb\nc\n")))
	require.NoError(t, f.update(1, []byte("second")))
	require.NoError(t, f.update(2, []byte("third")))
	require.NoError(t, f.update(2, []byte("3")))
	other := &fileStore{dir: f.dir, perFile: 3}
	require.NoError(t, other.update(0, []byte("a")))
	require.Equal(t, "a\nsecond\n3\n", string(other.plain))
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{{"-memtable", "0"}, {"-duration", "0s"}, {"more"}} {
		_, err := parse(args)
		require.Error(t, err, args)
	}
}
