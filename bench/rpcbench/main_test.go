package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/bench/internal/process"
	"docstore/bench/internal/results"
)

func TestMain(m *testing.M) { process.TestMain(m, main) }

func TestEveryContestant(t *testing.T) {
	require.NoError(t, run([]string{"-rounds", "1", "-duration", "20ms", "-callers", "1,4"}))
}

func TestEveryWorkload(t *testing.T) {
	for _, w := range workloads {
		t.Run(w.name, func(t *testing.T) {
			require.NoError(t, run([]string{"-workloads", w.name, "-rounds", "1", "-duration", "50ms", "-callers", "2",
				"-clients", "20", "-conns", "3", "-contestants", "echo,boxcar,http", "-sizes", "16,65536", "-settle", "0s", "-quiet", "50ms"}))
		})
	}
}

func TestResultsAreResumed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results.ndjson")
	args := []string{"-workloads", "calls,open,slow,connections,idle", "-contestants", "echo,http", "-callers", "2", "-rounds", "2",
		"-duration", "20ms", "-conns", "2", "-clients", "3", "-settle", "0s", "-quiet", "10ms", "-results", name, "-table", "test"}
	require.NoError(t, run(args))
	first, err := results.Read(name)
	require.NoError(t, err)
	require.Len(t, first, 2*2+3+4*2+2+2*2+2)
	require.Equal(t, "calls, 2 callers, 1024 bytes", first[0].Phase)
	require.Positive(t, first[0].Figures["ops/s"])
	require.NoError(t, run(args))
	again, err := results.Read(name)
	require.NoError(t, err)
	require.Equal(t, first, again, "nothing is measured again")
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{{"-callers", "0"}, {"-contestants", "none"}, {"-rounds", "0"}, {"-workloads", "none"}, {"-sizes", "15"}, {"-conns", "0"}} {
		_, err := parse(args)
		require.Error(t, err, args)
	}
}
