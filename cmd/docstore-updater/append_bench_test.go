package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/jobs"
)

// BenchmarkAppend measures a whole run of append, from the lines of a file to durable
// segments.
func BenchmarkAppend(b *testing.B) {
	postings := jobs.New(1)
	var lines []byte
	for len(lines) < 64<<20 {
		lines = append(append(lines, postings.Next()...), '\n')
	}
	input := write(b, filepath.Join(b.TempDir(), "in.ndjson"), string(lines))
	b.SetBytes(int64(len(lines)))
	for b.Loop() {
		r := run(b.Context(), nil, "append", "--quiet", "--codec", "none", "--queue", b.TempDir(), input)
		require.Equal(b, cli.ExitOK, r.status, r.stderr)
	}
}
