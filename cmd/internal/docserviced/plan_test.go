package docserviced

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/capacity"
	"docstore/cmd/internal/cli"
)

func TestPlan(t *testing.T) {
	small := []string{"plan", "--documents", "100e6", "--bytes", "910B", "--rate", "100e3"}
	r := run(t.Context(), small...)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Contains(t, r.stdout, "machines     3, of which 2 can be away at the peak\n")
	require.NotContains(t, r.stdout, "columns")
	require.Contains(t, r.stdout, "\ndocserviced serve --memory 515MiB ...\n")

	r = run(t.Context(), append(small, "--json")...)
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	var plan capacity.Plan
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &plan))
	require.Equal(t, 1, plan.Columns)

	r = run(t.Context(), "plan", "--documents", "2e9", "--bytes", "4KiB", "--rate", "1e6")
	require.Equal(t, cli.ExitOK, r.status, r.stderr)
	require.Regexp(t, `(?m)^columns +\d+, with \d+ shards: `, r.stdout)
	require.Regexp(t, `(?m)^docstore-updater append --shards \d+ \.\.\.$`, r.stdout)

	for _, args := range [][]string{{"--hot", "7"}, {"--bytes", "0"}, {"--bytes", "many"}} {
		require.Equal(t, cli.ExitUsage, run(t.Context(), append(small, args...)...).status, args)
	}
	require.Equal(t, cli.ExitUsage, run(t.Context(), "plan", "--documents", "1").status)
}
