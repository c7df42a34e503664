package main

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
)

// The table of a small experiment has every line.
func TestSmallExperiment(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run([]string{"-algorithms", "rocksteadier", "-frontends", "3", "-backends", "20", "-k", "5",
		"-rounds", "1", "-deadline", "1s", "-warmup", "500ms", "-settle", "300ms", "-every", "400ms"}, &out))
	require.Contains(t, out.String(), "rocksteadier, make before break")
	require.Contains(t, out.String(), "rocksteadier, break before make")
}

func TestReport(t *testing.T) {
	change := &window{lasted: 4 * time.Second, cpu: 3 * time.Second, dialled: 7, slots: 5, failures: map[string]int{}}
	for i := range 1000 {
		change.add(time.Duration(i)*time.Millisecond, nil)
	}
	change.add(time.Second, boxcarrpc.ErrPoolBusy)
	change.held(3)
	settled := &window{lasted: 2 * time.Second, cpu: time.Second, failures: map[string]int{}}
	p := period{change: change, settled: settled}
	require.Equal(t, time.Second, p.cost())
	f := figuresOf([]period{p, p})
	for name, want := range map[string]float64{
		"connections": 14, "cpu s": 2, "failed": 2, "worst failed": 1, "failed: no free slot": 2, "requests": 2002,
		"p99 ns": 990e6, "p999 ns": 999e6, "settled failed": 0, "settled p99 ns": 0, "fewest slots": 3,
	} {
		require.Equal(t, want, f[name], name)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"more"}, {"-algorithms", "x"}, {"-backends", "10"}, {"-settle", "7s"}, {"-rounds", "0"}} {
		require.Error(t, run(args, io.Discard), args)
	}
}
