package boxcar

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/credentials"
	"docstore/cmd/internal/cli"
	"docstore/internal/testcert"
)

const testToken = "5f0c9d3be1a94f0fb1f7c0a1"

func TestConflictingSecurityFlags(t *testing.T) {
	const (
		apart      = "--tls-cert and --tls-key go together; give both"
		encrypted  = "--insecure contradicts --tls, --tls-ca and --tls-cert; remove it"
		plainToken = "--insecure contradicts --token-file: a token is not sent in plain text; give --tls-ca instead"
	)
	for args, want := range map[string][]string{
		"--tls-cert a":                           {apart},
		"--insecure --tls":                       {encrypted},
		"--insecure --tls-ca a":                  {encrypted},
		"--insecure --token-file a":              {plainToken},
		"--insecure --token-file a --tls-cert a": {apart, encrypted, plainToken},
		"--insecure --tls --timeout 0s --servers /": {
			`--servers: "/" is not an address; use HOST:PORT[,HOST:PORT...], or file:, pattern:, dns:, srv:, etcd:// or gossip://`,
			"--timeout 0s: must be more than 0", encrypted,
		},
	} {
		r := run(t.Context(), "", append([]string{"slots"}, strings.Fields(args)...)...)
		require.Equal(t, cli.ExitUsage, r.status, args)
		require.Equal(t, "boxcar: "+strings.Join(want, "; ")+"; see boxcar slots --help\n", r.stderr)
	}
	for _, command := range []string{"get", "mget", "scan", "slots", "drain", "undrain", "bench"} {
		require.Contains(t, run(t.Context(), "", command, "--help").stdout, "--tls-ca")
	}
	for args, want := range map[string]string{
		"get --collection jobs 1": "refusing plain text to another host; give --tls or --tls-ca, or --insecure if this is intended",
		"get --collection jobs --token-file " + testcert.Write(t, t.TempDir(), "token", []byte(testToken)) + " 1": "refusing to send a token to another host in plain text; give --tls or --tls-ca",
	} {
		r := run(t.Context(), "", append(strings.Fields(args), "--servers", "10.255.255.1:7070", "--timeout", "1h")...)
		require.Equal(t, cli.ExitUsage, r.status, r.stderr)
		require.Contains(t, r.stderr, want)
	}
	r := run(t.Context(), "", "slots", "--tls-ca", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, "no such file")
}

// Commands against a server that requires TLS and a token.
func TestCommandsOverTLS(t *testing.T) {
	dir := t.TempDir()
	ca := testcert.NewCA(t, "CA")
	certificate, key := ca.Files(t, dir, "server")
	config, err := credentials.ServerTLS(credentials.Files{Certificate: certificate, Key: key}, nil)
	require.NoError(t, err)
	tokens, err := credentials.OpenTokens(testcert.Write(t, dir, "tokens", []byte("me "+testToken)), nil)
	require.NoError(t, err)
	address := serveWith(t, func(context.Context, string, []byte, []byte) ([]byte, error) { return nil, nil }, &boxcarrpc.ServerOptions{TLS: config, Authenticate: tokens.Authenticate})
	authority := ca.File(t, dir, "ca")
	token := testcert.Write(t, dir, "token", []byte(testToken))
	wrong := testcert.Write(t, dir, "wrong", []byte(testToken+"!"))

	r := run(t.Context(), "", "slots", "--servers", address, "--tls-ca", authority, "--token-file", token)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Contains(t, r.stdout, address)
	pool, err := (&serverFlags{security: security{ca: authority, tokenFile: token}}).newPool([]string{address}, &boxcarrpc.PoolOptions{Name: "holder"})
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pool.WaitReady(t.Context()))
	r = run(t.Context(), "", "slots", "--servers", address, "--tls-ca", authority, "--token-file", token)
	require.Contains(t, r.stdout, "holder as me ")
	for want, args := range map[string][]string{
		"unknown token":                   {"--tls-ca", authority, "--token-file", wrong},
		"a token or a certificate":        {"--tls-ca", authority},
		"unknown authority":               {"--tls", "--token-file", token},
		"this server requires TLS":        {"--token-file", token},
		"is one running there, and servi": {"--insecure"},
	} {
		r := run(t.Context(), "", append([]string{"slots", "--servers", address, "--timeout", "1s"}, args...)...)
		require.Equal(t, cli.ExitFailure, r.status, args)
		require.Contains(t, r.stderr, want)
		require.NotContains(t, r.stderr, testToken)
	}
}
