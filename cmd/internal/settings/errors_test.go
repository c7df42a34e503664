package settings

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/internal/units"
)

// TestAllErrorsAreReported: all errors of flags, arguments, the environment and the file
// are in one line, each with a correction.
func TestAllErrorsAreReported(t *testing.T) {
	newRoot := func(*cli.Env) *cobra.Command {
		root := &cobra.Command{Use: "tool", RunE: cli.NeedsCommand}
		serve := &cobra.Command{Use: "serve --data DIR ID", Args: cobra.ExactArgs(1), RunE: func(*cobra.Command, []string) error { return nil }}
		memory := units.Size(1 << 20)
		flags := serve.Flags()
		collections := flags.StringArray("collection", nil, "collections")
		flags.String("data", "", "directory of the indexes")
		flags.Duration("grace", 0, "")
		flags.Float64("rate", 0, "")
		flags.Int("callers", 0, "")
		flags.Bool("quiet", false, "")
		flags.StringSlice("servers", nil, "")
		flags.Var(&memory, "memory", "")
		require.NoError(t, serve.MarkFlagRequired("data"))
		serve.PreRunE = func(*cobra.Command, []string) error {
			if len(*collections) > 1 && (*collections)[0] == (*collections)[1] {
				return cli.Usagef("--collection is given twice")
			}
			if memory < 1<<20 {
				return cli.Usagef("--memory %s: at least 1 MiB", &memory)
			}
			return nil
		}
		With(serve, "TOOL")
		root.AddCommand(serve)
		return root
	}
	path := filepath.Join(t.TempDir(), "tool.yaml")
	require.NoError(t, os.WriteFile(path, []byte("gracce: 1s\nrate: fast\n"), 0o600))
	for _, test := range []struct {
		name     string
		args     []string
		environ  []string
		problems []string
	}{
		{"values of all kinds", []string{"--data", "d", "--grace", "5", "--rate", "x", "--callers", "many", "--quiet=perhaps", "--servers", `a"b`, "--memory", "lots", "--callers", "99999999999999999999", "id"}, nil, []string{
			`--grace "5": write a duration, such as 250ms, 10s or 1h30m`,
			`--rate "x": write a number, such as 0.5 or 2000`,
			`--callers "many": write a whole number`,
			`--quiet "perhaps": write true or false`,
			`--servers "a\"b": write comma-separated values without quotation marks`,
			`--memory "lots": write a size, such as 64MiB, 1.5GB or 4096`,
			`--callers "99999999999999999999": too large; write a smaller number`,
		}},
		{"flags, environment, file and what is impossible", []string{"--config", path, "--callers", "many", "--memory", "1KiB", "id"}, []string{"TOOL_GRACE=5", "TOOL_MEMROY=1"}, []string{
			`--callers "many": write a whole number`,
			`TOOL_GRACE "5": write a duration, such as 250ms, 10s or 1h30m`,
			`unknown variable TOOL_MEMROY; did you mean TOOL_MEMORY?`,
			`FILE:1: unknown key gracce; did you mean grace?`,
			`FILE:2: rate "fast": write a number, such as 0.5 or 2000`,
			`--memory 1KiB: at least 1 MiB`,
			`--data is missing: give the directory of the indexes`,
		}},
		{"unknown flags", []string{"--data", "d", "--memroy", "1GiB", "--qiet", "-rate", "5", "-x", "--grace", "5", "id"}, nil, []string{
			`unknown flag --memroy; did you mean --memory?`,
			`unknown flag --qiet; did you mean --quiet?`,
			`unknown flag -rate; did you mean --rate?`,
			`unknown flag -x`,
			`--grace "5": write a duration, such as 250ms, 10s or 1h30m`,
		}},
		{"arguments", []string{"a", "b"}, nil, []string{
			`too many or too few arguments, "a" "b"; write tool serve --data DIR ID`,
			`--data is missing: give the directory of the indexes`,
		}},
		{"no argument and a wrong flag", []string{"--data", "d", "--grace", "5"}, nil, []string{
			`--grace "5": write a duration, such as 250ms, 10s or 1h30m`,
			`an argument is missing; write tool serve --data DIR ID`,
		}},
		{"a value is missing", []string{"id", "--grace", "5", "--data"}, nil, []string{
			`--data needs a value`,
			`--grace "5": write a duration, such as 250ms, 10s or 1h30m`,
			`--data is missing: give the directory of the indexes`,
		}},
		{"a value is empty", []string{"id", "--data", ""}, nil, []string{
			`--data is missing: give the directory of the indexes`,
		}},
		// Values before the invalid flag are not set twice.
		{"a list before a wrong flag", []string{"--data", "d", "--collection", "a", "--grace", "5", "id"}, nil, []string{
			`--grace "5": write a duration, such as 250ms, 10s or 1h30m`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, variable := range test.environ {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			var stderr bytes.Buffer
			env := &cli.Env{Stderr: &stderr, Now: time.Now}
			require.Equal(t, cli.ExitUsage, cli.Run(t.Context(), newRoot, env, append([]string{"serve"}, test.args...)))
			told := strings.ReplaceAll(stderr.String(), path, "FILE")
			require.Equal(t, "tool: "+strings.Join(test.problems, "; ")+"; see tool serve --help\n", told)
		})
	}
	for args, want := range map[string]string{
		"serv --data x":          "tool: unknown command serv; did you mean serve?; see tool --help\n",
		"--log-level DEBUG serv": "tool: unknown command serv; did you mean serve?; see tool --help\n",
		"--nonsense":             "tool: unknown flag --nonsense; see tool --help\n",
	} {
		var stderr bytes.Buffer
		env := &cli.Env{Stderr: &stderr, Now: time.Now}
		require.Equal(t, cli.ExitUsage, cli.Run(t.Context(), newRoot, env, strings.Fields(args)))
		require.Equal(t, want, stderr.String())
	}
}
