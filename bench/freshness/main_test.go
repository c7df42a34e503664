package main

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRun lets a few documents through the real processes, each compared with
// what was appended.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("rsync"); err != nil {
		t.Skip("rsync is not installed")
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-rate", "50", "-duration", "100ms"}, &out))
	require.Regexp(t, `same file system +5 `, out.String())
	require.Regexp(t, `through rsync +5 `, out.String())
	require.Regexp(t, `a timer, late by +[1-9]`, out.String())
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{{"-rate", "0"}, {"-duration", "0s"}, {"-interval", "500ms"}, {"-patience", "-1s"}, {"file"}} {
		require.Error(t, run(t.Context(), args, nil), "%v", args)
	}
}
