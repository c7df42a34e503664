package docserviced

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/servertest"
)

func TestHealth(t *testing.T) {
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", "a document")
	d, _ := startTestDaemon(t, testOptions(t, queueDir))
	waitReady(t, d)
	at := "--http=" + d.HTTPAddress()
	for _, args := range [][]string{{"health", at}, {"health", at, "--ready"}} {
		r := run(t.Context(), args...)
		require.Equal(t, cli.ExitOK, r.status, r.stderr)
		require.Empty(t, r.stdout)
	}
	r := run(t.Context(), "health", at, "--json")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Regexp(t, `^\{\n  "ready": true,\n  "collections": \{\n    "jobs": `, r.stdout)
	d.Drain()
	r = run(t.Context(), "health", at, "--json", "--ready")
	require.Equal(t, cli.ExitFailure, r.status)
	require.Regexp(t, `^\{\n  "ready": false,\n  "ending": true,`, r.stdout)
	require.Equal(t, cli.ExitOK, run(t.Context(), "health", at).status)
	r = run(t.Context(), "health", at, "--ready")
	require.NotEqual(t, cli.ExitOK, r.status)
	require.Contains(t, r.stderr, `"ending": true`)

	r = run(t.Context(), "health", "--http=127.0.0.1:1")
	require.NotEqual(t, cli.ExitOK, r.status)
	require.Contains(t, r.lastLine(), "does not answer")
	require.Empty(t, run(t.Context(), "health", "--http=127.0.0.1:1", "--json").stdout)
	r = run(t.Context(), "health", "--http=127.0.0.1:1", "--wait=300ms")
	require.Contains(t, r.lastLine(), "does not answer")
	require.Equal(t, cli.ExitUsage, run(t.Context(), "health", at, "--token-file=x").status)
}
