package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table of a small experiment has every line.
func TestSmallExperiment(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run([]string{"-algorithms", "rocksteadier", "-frontends", "3", "-backends", "20", "-k", "5",
		"-rounds", "1", "-deadline", "1s", "-warmup", "500ms", "-every", "400ms"}, &out))
	require.Regexp(t, `rocksteadier, make before break +[0-9]+ `, out.String())
	require.Regexp(t, `rocksteadier, break before make +[0-9]+ `, out.String())
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"more"}, {"-algorithms", "x"}, {"-backends", "10"}, {"-every", "0s"}, {"-rounds", "0"}} {
		require.Error(t, run(args, io.Discard), args)
	}
}
