package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain makes of this test binary the child that compare starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-json" {
		main()
		return
	}
	os.Exit(m.Run())
}

// everyPhase is every workload, those that others need first.
var everyPhase = []string{
	"fillrandom", "readrandom", "readrandom:2", "readmissing", "readseq", "readreverse", "seekrandom",
	"readwhilewriting", "seekrandomwhilewriting", "ycsbe", "ycsbewhilewriting", "readseq",
}

func TestEveryWorkloadOnEveryEngine(t *testing.T) {
	for _, engine := range engineNames() {
		t.Run(engine, func(t *testing.T) {
			s, err := parse([]string{
				"-engine", engine, "-num", "3000", "-db", t.TempDir(),
				"-histogram", "-benchmarks", strings.Join(everyPhase, ","),
			})
			require.NoError(t, err)
			results, err := s.measure() // which checks what is stored at its end
			require.NoError(t, err)
			require.Len(t, results, len(everyPhase))
			for _, r := range results {
				require.Positive(t, r.rate(), r.Phase)
			}
		})
	}
}

func TestEnginesAreCompared(t *testing.T) {
	require.NoError(t, run([]string{"-engine", "docstore,pebble", "-num", "1000", "-rounds", "2", "-benchmarks", "fillrandom,readrandom"}))
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{{"-num", "0"}, {"-reads", "5"}, {"-use_existing_db"}, {"more"}} {
		_, err := parse(args)
		require.Error(t, err, args)
	}
	require.Error(t, run([]string{"-engine", "none", "-num", "10"}))
	require.Error(t, run([]string{"-benchmarks", "none", "-num", "10"}))
}

func TestRivalsThatAreNotBuiltInAreSkipped(t *testing.T) {
	if engines["lmdb"] != nil {
		t.Skip("built with cgo_rivals")
	}
	require.Equal(t, []string{"docstore"}, available([]string{"docstore", "lmdb"}))
	require.Error(t, run([]string{"-engine", "lmdb", "-num", "10"}))
}

func TestMemoryIsBounded(t *testing.T) {
	cgroup, err := makeCgroup(64 << 20)
	if err != nil {
		t.Skip(err)
	}
	require.NoError(t, os.Remove(cgroup))
	require.NoError(t, run([]string{"-engine", "docstore", "-num", "1000", "-memory_limit", "134217728", "-benchmarks", "fillrandom,readrandom"}))
	require.NoDirExists(t, cgroup)
}

func TestQuantiles(t *testing.T) {
	var h, other histogram
	for d := range time.Duration(1000) {
		h.add(d)
		other.add(time.Second + d)
	}
	require.InDelta(t, 500, h.quantile(0.5), 500/16)
	require.InDelta(t, 999, h.quantile(1), 999/16)
	h.merge(&other)
	require.InDelta(t, time.Second, h.quantile(0.75), float64(time.Second)/16)
	require.Less(t, h.quantile(0.4), time.Microsecond)
}
