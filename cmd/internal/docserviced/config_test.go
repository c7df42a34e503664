package docserviced

import (
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

func TestExplain(t *testing.T) {
	r := run(t.Context(), "config", "--collection", "jobs=/srv/jobs", "--data", "/srv/index", "--memory", "64MiB", "--explain")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Regexp(t, `(?m)^memory +64 MiB  --memory$`, r.stdout)
	require.Regexp(t, `(?m)^  messages +16 MiB  requests and responses$`, r.stdout)
	require.Regexp(t, `(?m)^max-conns +2048  --max-conns 16384, at most one per 32 KiB of memory$`, r.stdout)

	r = run(t.Context(), "config", "--collection", "jobs=/srv/jobs", "--data", "/srv/index", "--explain", "--memory", "1MiB")
	require.Equal(t, cli.ExitUsage, r.status)
}
