package docserviced

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/cmd/internal/cli"
	"docstore/internal/servertest"
)

// audited returns the actions of an audit log, each with its result.
func audited(t *testing.T, path string) (actions []string) {
	t.Helper()
	content, err := os.ReadFile(path) //nolint:gosec // a file of the test
	require.NoError(t, err)
	for line := range strings.Lines(string(content)) {
		var r struct {
			Msg, By, Result string
			Audit           bool
		}
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		require.True(t, r.Audit)
		require.NotEmpty(t, r.By)
		actions = append(actions, strings.TrimPrefix(r.Msg, "docserviced ")+" "+r.Result)
	}
	return actions
}

// A daemon records each drain and undrain with the identity of the client, refused ones too.
func TestDrainsAreAudited(t *testing.T) {
	o := testOptions(t, t.TempDir())
	tokens := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("olga 0123456789abcdef-olga\nfrontend 0123456789abcdef-frontend\n"), 0o600))
	o.Security.TokenFile, o.Security.Operators = tokens, []string{"olga"}
	d, log := startTestDaemon(t, o)
	ask := func(name, method string) error {
		token := "0123456789abcdef-" + name
		pool, err := boxcarrpc.NewPool(discovery.Static(d.BoxcarAddress()), &boxcarrpc.PoolOptions{Token: func() (string, error) { return token, nil }})
		require.NoError(t, err)
		defer func() { require.NoError(t, pool.Close()) }()
		stream, err := pool.Stream(t.Context(), method, nil)
		if err != nil {
			return err
		}
		defer stream.Close()
		_, err = stream.Receive(nil)
		return err
	}
	require.NoError(t, ask("olga", boxcarrpc.MethodDrain))
	require.Equal(t, boxcarrpc.CodePermissionDenied, boxcarrpc.CodeOf(ask("frontend", boxcarrpc.MethodUndrain)))
	require.NoError(t, ask("olga", boxcarrpc.MethodUndrain))
	var got []string
	for line := range strings.Lines(log.String()) {
		if _, text, found := strings.Cut(line, `"audit":true,`); found {
			require.Regexp(t, `"msg":"(un)?drain"`, line)
			text, _, _ = strings.Cut(text, `,"address":"127.0.0.1:`)
			got = append(got, text)
		}
	}
	require.Equal(t, []string{
		`"by":"olga","result":"done","identity":"token"`, `"by":"frontend","result":"failed","identity":"token"`, `"by":"olga","result":"done","identity":"token"`,
	}, got)
}

func TestReindexIsAudited(t *testing.T) {
	queue, audit := t.TempDir(), filepath.Join(t.TempDir(), "audit.log")
	servertest.Fill(t, queue, "1", "one")
	o := testOptions(t, queue)
	indexOnce(t, o)
	require.Equal(t, cli.ExitOK, run(t.Context(), "reindex", "--data", o.DataDir, "--audit-log", audit, "jobs").status)
	require.Equal(t, cli.ExitFailure, run(t.Context(), "reindex", "--data", o.DataDir, "--audit-log", audit, "others").status)
	require.Equal(t, []string{"reindex done", "reindex failed"}, audited(t, audit))
}

// A daemon does not start if its audit log cannot be written.
func TestServeNeedsItsAuditLog(t *testing.T) {
	queue := t.TempDir()
	servertest.Fill(t, queue, "1", "one")
	r := run(t.Context(), "serve", "--collection", "jobs="+queue, "--data", t.TempDir(), "--boxcar", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--audit-log", filepath.Join(queue, "none", "audit.log"))
	require.Equal(t, cli.ExitFailure, r.status)
	require.Contains(t, r.lastLine(), "audit log: open ")
}
