package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain makes of this test binary the server that run starts for each
// contestant.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-serve" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestEveryContestant(t *testing.T) {
	require.NoError(t, run([]string{"-rounds", "1", "-duration", "20ms", "-callers", "1,4"}))
}

func TestEveryWorkload(t *testing.T) {
	for _, w := range workloads {
		t.Run(w.name, func(t *testing.T) {
			require.NoError(t, run([]string{"-workloads", w.name, "-rounds", "1", "-duration", "50ms", "-callers", "2",
				"-clients", "20", "-settle", "0s", "-quiet", "50ms"}))
		})
	}
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{{"-callers", "0"}, {"-contestants", "none"}, {"-rounds", "0"}, {"-workloads", "none"}} {
		_, err := parse(args)
		require.Error(t, err, args)
	}
}
