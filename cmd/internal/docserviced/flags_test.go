package docserviced

import (
	"os"
	"path/filepath"
	"testing"

	"docstore/cmd/internal/cli"
	"docstore/docservice/server"
	"docstore/internal/servertest"
	"docstore/internal/testcert"

	"github.com/stretchr/testify/require"
)

func TestMemoryFlag(t *testing.T) {
	var m memorySize
	require.Equal(t, "auto", m.String())
	require.NoError(t, m.Set("2GiB"))
	require.Equal(t, "2GiB", m.String())
	require.NoError(t, m.Set("auto"))
	require.Zero(t, m)
	require.ErrorContains(t, m.Set("much"), "write auto for a share")
	require.ErrorContains(t, m.Set("0"), "at least 16 MiB")
}

const testToken = "5f0c9d3be1a94f0fb1f7c0a1"

func TestInvalidLimits(t *testing.T) {
	dir := t.TempDir()
	serve := []string{"serve", "--data", dir, "--collection", "jobs=" + dir}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--max-conns 0: must be between 1 and 16777216", []string{"--max-conns", "0"}},
		{"--max-slots -1: must be", []string{"--max-slots", "-1"}},
		{"--max-in-flight 0: must be", []string{"--max-in-flight", "0"}},
		{"--rate: rate -1 per second: must be from 1 per hour to 1000000000 per second", []string{"--rate", "-1"}},
		{"--rate-burst needs --rate; give both", []string{"--rate-burst", "7"}},
		{"--client-rate: rate 2e+09 per second: must be from", []string{"--client-rate", "2e9"}},
		{"--client-rate: burst -7: must be from", []string{"--client-rate", "1", "--client-rate-burst", "-7"}},
		{"--client-rate-burst needs --client-rate; give both", []string{"--client-rate-burst", "7"}},
	} {
		r := run(t.Context(), append(serve, c.args...)...)
		require.Equal(t, cli.ExitUsage, r.status, c.args)
		require.Contains(t, r.stderr, c.want)
	}

	file := filepath.Join(dir, "docserviced.yaml")
	require.NoError(t, os.WriteFile(file, []byte("max-in-flight: 0\n"), 0o600))
	require.Contains(t, run(t.Context(), append(serve, "--config", file)...).stderr, "--max-in-flight 0: must be")
	t.Setenv("DOCSERVICED_CLIENT_RATE", "-3")
	require.Contains(t, run(t.Context(), serve...).stderr, "--client-rate: rate -3 per second")
}

func TestConflictingSecurityFlags(t *testing.T) {
	dir, queueDir := t.TempDir(), t.TempDir()
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--tls-cert and --tls-key go together", []string{"--tls-cert", "a"}},
		{"--tls-cert and --tls-key go together", []string{"--tls-key", "a"}},
		{"--tls-client-ca needs --tls-cert and --tls-key", []string{"--tls-client-ca", "a"}},
		{"--insecure contradicts --tls-cert and --token-file", []string{"--insecure", "--tls-cert", "a", "--tls-key", "b"}},
		{"--insecure contradicts --tls-cert and --token-file", []string{"--insecure", "--token-file", "a"}},
		{"--boxcar :7070 would serve other hosts in plain text; give --tls-cert and --tls-key, or --insecure if this is intended", []string{"--boxcar", ":7070"}},
		{"--boxcar 10.0.0.1:7070 would serve other hosts in plain text", []string{"--boxcar", "10.0.0.1:7070"}},
		{"--grpc :7072 would serve other hosts in plain text", []string{"--grpc", ":7072"}},
		{"--boxcar :7070 would serve other hosts without authentication; give --tls-client-ca or --token-file, or --insecure-anonymous if this is intended", []string{"--boxcar", ":7070", "--tls-cert", "a", "--tls-key", "b"}},
		{"--grpc :7072 would serve other hosts without authentication", []string{"--grpc", ":7072", "--tls-cert", "a", "--tls-key", "b"}},
		{"--boxcar :7070 would receive tokens in plain text; give --tls-cert and --tls-key", []string{"--boxcar", ":7070", "--token-file", "a"}},
	} {
		r := run(t.Context(), append([]string{"serve", "--data", dir, "--collection", "jobs=" + queueDir}, c.args...)...)
		require.Equal(t, cli.ExitUsage, r.status, c.args)
		require.Contains(t, r.stderr, c.want)
	}
	r := run(t.Context(), "serve", "--data", dir, "--collection", "jobs="+queueDir, "--token-file", filepath.Join(dir, "none"))
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, "no such file")
	require.ErrorContains(t, (&server.Security{Operators: []string{"baba"}}).Check("localhost:7070", ""), "--operators needs")
	require.NoError(t, (&server.Security{Operators: []string{"baba"}, TokenFile: "c"}).Check("localhost:7070", ""))
	require.NoError(t, (&server.Security{Insecure: true}).Check(":7070", ":7072"))
	require.NoError(t, (&server.Security{Certificate: "a", Key: "b", TokenFile: "c"}).Check(":7070", ":7072"))
	require.NoError(t, (&server.Security{TokenFile: "c"}).Check("localhost:7070", "[::1]:7072"))
	require.NoError(t, (&server.Security{Certificate: "a", Key: "b", InsecureAnonymous: true}).Check(":7070", ":7072"))
	require.NoError(t, (&server.Security{Certificate: "a", Key: "b"}).Check("localhost:7070", "[::1]:7072"))
}

func TestAccessFlags(t *testing.T) {
	require.ErrorContains(t, (&server.Security{Access: "a"}).Check("localhost:7070", ""), "--access needs --tls-client-ca or --token-file")
	queueDir := t.TempDir()
	servertest.Fill(t, queueDir, "a", `{"id":"a"}`)
	tokens := testcert.Write(t, t.TempDir(), "tokens", []byte("frontend "+testToken+"\n"))
	r := run(t.Context(), "serve", "--collection", "jobs="+queueDir, "--data", t.TempDir(), "--boxcar", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--token-file", tokens, "--access", filepath.Join(t.TempDir(), "missing"))
	require.NotEqual(t, cli.ExitOK, r.status)
	require.Contains(t, r.lastLine(), "missing: no such file")
}
