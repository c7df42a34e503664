package main

import (
	"os"
	"testing"

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

func TestEveryWorkloadOnEveryEngine(t *testing.T) {
	for _, engine := range engineNames() {
		t.Run(engine, func(t *testing.T) {
			s, err := parse([]string{
				"-engine", engine, "-num", "3000", "-db", t.TempDir(),
				"-benchmarks", "fillrandom,readrandom,readrandom:2,readmissing,readseq,readreverse,seekrandom",
			})
			require.NoError(t, err)
			results, err := s.measure() // which checks what is stored at its end
			require.NoError(t, err)
			require.Len(t, results, 7)
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
