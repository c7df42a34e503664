package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/bench/internal/results"
)

// TestRun lets a few documents through the real processes, each compared with
// the appended line.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("rsync"); err != nil {
		t.Skip("rsync is not installed")
	}
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "results.ndjson")
	args := []string{"-rate", "50", "-duration", "100ms", "-s3-delay", "0", "-results", file, "-table", "test"}
	require.NoError(t, run(t.Context(), args, &out))
	require.Regexp(t, `same file system +5 `, out.String())
	require.Regexp(t, `through rsync +5 `, out.String())
	require.Regexp(t, `through a directory +5 `, out.String())
	require.Regexp(t, `through S3 +5 `, out.String())
	require.Regexp(t, `a timer, late by +[1-9]`, out.String())
	kept, err := results.Read(file)
	require.NoError(t, err)
	require.Len(t, kept, len(rows))
	require.Positive(t, kept[1].Figures["p99 ns"])
	require.NoError(t, run(t.Context(), args, &out), "nothing is measured again")
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{{"-rate", "0"}, {"-duration", "0s"}, {"-interval", "500ms"}, {"file"}} {
		require.Error(t, run(t.Context(), args, nil), "%v", args)
	}
}
