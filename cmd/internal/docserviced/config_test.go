package docserviced

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

// TestConfig prints settings, and reads the output with the same result.
func TestConfig(t *testing.T) {
	r := run(t.Context(), "config", "--collection", "jobs=/srv/jobs", "--data", "/srv/index", "--memory", "2GiB")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Regexp(t, `(?m)^memory: 2GiB +# flag$`, r.stdout)
	require.Regexp(t, `(?m)^http: 127\.0\.0\.1:7071 +# default$`, r.stdout)
	path := filepath.Join(t.TempDir(), "docserviced.yaml")
	require.NoError(t, os.WriteFile(path, []byte(r.stdout), 0o600))
	again := run(t.Context(), "config", "--config", path)
	require.Equal(t, cli.ExitOK, again.status, again.stderr)
	require.Regexp(t, `(?m)^memory: 2GiB +# .*docserviced.yaml:\d+$`, again.stdout)
	served := run(t.Context(), "serve", "--config", path)
	require.Contains(t, served.lastLine(), "/srv/jobs", "serve accepts the file")

	t.Setenv("DOCSERVICED_MEMORY", "1MiB")
	r = run(t.Context(), "serve", "--collection", "jobs=/srv/jobs", "--data", "/srv/index")
	require.Equal(t, cli.ExitUsage, r.status)
	require.Contains(t, r.lastLine(), "--memory 1MiB: must be at least 16 MiB")
}

// TestConfigJSON: a setting is a string, or a list, with its source.
func TestConfigJSON(t *testing.T) {
	r := run(t.Context(), "config", "--collection", "jobs=/srv/jobs", "--data", "/srv/index", "--json")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	var got map[string]struct{ Value, Source any }
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	require.Equal(t, map[string]any{"data": "/srv/index", "collection": []any{"jobs=/srv/jobs"}, "http": "127.0.0.1:7071", "http-cors": []any{}},
		map[string]any{"data": got["data"].Value, "collection": got["collection"].Value, "http": got["http"].Value, "http-cors": got["http-cors"].Value})
	require.Equal(t, "flag", got["data"].Source)
	require.Equal(t, "default", got["http"].Source)
	require.NotContains(t, got, "json")

	r = run(t.Context(), "config", "--collection", "jobs=/srv/jobs", "--data", "/srv/index", "--json", "--explain")
	require.Equal(t, cli.ExitUsage, r.status)
	require.Contains(t, r.lastLine(), "--explain and --json exclude each other")
}

func TestExplain(t *testing.T) {
	r := run(t.Context(), "config", "--collection", "jobs=/srv/jobs", "--data", "/srv/index", "--memory", "64MiB", "--explain")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Regexp(t, `(?m)^memory +64 MiB  --memory$`, r.stdout)
	require.Regexp(t, `(?m)^  messages +16 MiB  requests and responses$`, r.stdout)
	require.Regexp(t, `(?m)^max-conns +2048  --max-conns 16384, at most one per 32 KiB of memory$`, r.stdout)

	r = run(t.Context(), "config", "--collection", "jobs=/srv/jobs", "--data", "/srv/index", "--explain", "--memory", "1MiB")
	require.Equal(t, cli.ExitUsage, r.status)
}
