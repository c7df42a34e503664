package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/bench/internal/results"
)

func TestRun(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results.ndjson")
	args := []string{
		"-memtable", "65536", "-flushes", "10", "-reads", "100", "-documents", "50", "-per_file", "20", "-duration", "10ms", "-rounds", "1",
		"-results", name,
	}
	require.NoError(t, run(args))
	all, err := results.Read(name)
	require.NoError(t, err)
	require.Len(t, all, 3+2)
	require.Equal(t, all[2].Figures["flushes"], all[2].Figures["tables"], "always write")
	require.GreaterOrEqual(t, all[2].Figures["flushes"], 10.0)
	require.InDelta(t, 1, all[2].Figures["written times"], 0.01)
	require.Equal(t, 1.0, all[1].Figures["tables"], "always merge")
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
