package updater

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

// TestProgress: a bar on a terminal, none elsewhere, and no output with --quiet.
func TestProgress(t *testing.T) {
	t.Setenv("DOCSTORE_AUDIT_LOG", filepath.Join(t.TempDir(), "audit.log")) // not on standard error
	started := time.Now()
	for command, bar := range map[string]string{"append": "appending", "check": "checking", "compact": "compacting", "repair": "repairing"} {
		t.Run(command, func(t *testing.T) {
			stderrOf := func(terminal bool, flags ...string) string {
				dir := filepath.Join(t.TempDir(), "queue")
				for range 3 {
					ok(t, a1+"\n"+a2+"\n", "append", "--queue", dir, "--codec", "none")
				}
				var stdout, stderr bytes.Buffer
				env := &cli.Env{Stdin: strings.NewReader(a1), Stdout: &stdout, Stderr: &stderr, Terminal: terminal,
					Now: func() time.Time { return started }} // no time passes, so a meter shows only the end
				require.Equal(t, cli.ExitOK, cli.Run(t.Context(), New, env, append([]string{command, "--queue", dir}, flags...)), stderr.String())
				require.NotContains(t, stdout.String(), bar)
				return stderr.String()
			}
			require.Regexp(t, `\r`+bar+` .*B`, stderrOf(true))
			elsewhere := stderrOf(false)
			require.NotContains(t, elsewhere, "\r")
			require.NotContains(t, elsewhere, bar)
			require.Empty(t, stderrOf(true, "--quiet"))
			require.Empty(t, stderrOf(false, "--quiet"))
		})
	}
}
