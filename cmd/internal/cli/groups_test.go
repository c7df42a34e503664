package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// newGrouped returns a root with a command that has flags in groups.
func newGrouped(*Env) *cobra.Command {
	root := &cobra.Command{Use: "tool", Args: cobra.NoArgs, RunE: NeedsCommand}
	command := &cobra.Command{Use: "run", Short: "Run", RunE: func(*cobra.Command, []string) error { return nil }}
	for _, name := range []string{"a", "b", "c", "kind"} {
		command.Flags().String(name, "", "the "+name)
	}
	Group(command, "Common flags", "c", "kind")
	Group(command, "Flags of b", "b")
	Values(command, "kind", "red", "blue")
	root.AddCommand(command)
	return root
}

func TestGroupsOfFlags(t *testing.T) {
	e := newTestEnv()
	require.Equal(t, ExitOK, Run(t.Context(), newGrouped, &e.Env, []string{"run", "--help"}))
	require.Equal(t, `Run

Usage:
  tool run [flags]

Common flags:
      --c string      the c
      --kind string   the kind

Flags of b:
      --b string   the b

Other flags:
      --a string   the a
  -h, --help       help for run

Global Flags:
      --log-level   minimum level of log messages: DEBUG, INFO, WARN or
                    ERROR (default INFO)
`, e.out.String())
	require.Panics(t, func() { Group(&cobra.Command{Use: "x"}, "Common flags", "a") })
}

func TestVersionAndCompletion(t *testing.T) {
	for args, want := range map[string]string{"version": "tool ", "completion bash": "bash completion", "--help": "completion "} {
		e := newTestEnv()
		require.Equal(t, ExitOK, Run(t.Context(), newGrouped, &e.Env, strings.Fields(args)))
		require.Contains(t, e.out.String(), want)
	}
	e := newTestEnv()
	require.Equal(t, ExitOK, Run(t.Context(), newGrouped, &e.Env, []string{"__complete", "run", "--kind", ""}))
	require.Equal(t, "red\nblue\n:4\n", e.out.String())
}
