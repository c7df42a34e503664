package docserviced

import (
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

// Configurations that expose private data to other hosts are refused, with the flags to
// use.
func TestHTTPFlags(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--http :7071 would serve other hosts in plain text; give --tls-cert, --tls-key and --token-file, or --http-open if this is intended", nil},
		{"--http :7071 would serve other hosts in plain text", []string{"--token-file", "t"}},
		{"--http :7071 would serve other hosts in plain text", []string{"--insecure"}},
		{"--http :7071 would serve clients without authentication; give --token-file or --tls-client-ca, or --http-open if this is intended", []string{"--tls-cert", "c", "--tls-key", "k"}},
	} {
		r := run(t.Context(), append([]string{"config", "--data", dir, "--collection", "jobs=" + dir, "--http", ":7071"}, c.args...)...)
		require.Equal(t, cli.ExitUsage, r.status, c.args)
		require.Contains(t, r.stderr, c.want)
	}
	for _, args := range [][]string{
		{"--http-open"}, {"--tls-cert", "c", "--tls-key", "k", "--token-file", "t"}, {"--tls-cert", "c", "--tls-key", "k", "--tls-client-ca", "a"},
	} {
		r := run(t.Context(), append([]string{"config", "--data", dir, "--collection", "jobs=" + dir, "--http", ":7071"}, args...)...)
		require.Equal(t, cli.ExitOK, r.status, r.stderr)
	}
}
