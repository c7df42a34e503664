package main

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/credentials"
	"docstore/internal/cli"
	"docstore/internal/testcert"
)

const testToken = "5f0c9d3be1a94f0fb1f7c0a1"

func TestSecurityFlagsThatDoNotGoTogether(t *testing.T) {
	for want, args := range map[string][]string{
		"--tls-cert and --tls-key go together":                                       {"--tls-cert", "a"},
		"--insecure contradicts --tls, --tls-ca and --tls-cert":                      {"--insecure", "--tls"},
		"--insecure contradicts --token-file: a token is not sent in plain text":     {"--insecure", "--token-file", "a"},
		"--insecure contradicts --tls, --tls-ca and --tls-cert; see boxcar slots --": {"--insecure", "--tls-ca", "a"},
	} {
		r := run(t.Context(), "", append([]string{"slots"}, args...)...)
		require.Equal(t, cli.ExitUsage, r.status, args)
		require.Contains(t, r.stderr, want)
	}
	for _, command := range []string{"get", "mget", "scan", "slots", "drain", "undrain", "bench"} {
		require.Contains(t, run(t.Context(), "", command, "--help").stdout, "--tls-ca")
	}
	r := run(t.Context(), "", "slots", "--tls-ca", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.stderr, "no such file")
}

// Commands against a server that wants TLS and a token.
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
	pool, err := (&security{ca: authority, tokenFile: token}).newPool([]string{address}, &boxcarrpc.PoolOptions{Name: "holder"})
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pool.WaitReady(t.Context()))
	r = run(t.Context(), "", "slots", "--servers", address, "--tls-ca", authority, "--token-file", token)
	require.Contains(t, r.stdout, "holder as me ")
	for want, args := range map[string][]string{
		"the token is not known":          {"--tls-ca", authority, "--token-file", wrong},
		"a token or a certificate":        {"--tls-ca", authority},
		"unknown authority":               {"--tls", "--token-file", token},
		"this server speaks TLS only":     {"--token-file", token},
		"is one running there, and servi": {"--insecure"},
	} {
		r := run(t.Context(), "", append([]string{"slots", "--servers", address, "--timeout", "300ms"}, args...)...)
		require.Equal(t, cli.ExitFailure, r.status, args)
		require.Contains(t, r.stderr, want)
		require.NotContains(t, r.stderr, testToken)
	}
}
