package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// Commands below a command are checked as those below the root.
func TestErrorsOfNestedCommands(t *testing.T) {
	newRoot := func(*Env) *cobra.Command {
		root := &cobra.Command{Use: "tool", RunE: NeedsCommand}
		group := &cobra.Command{Use: "group", Args: cobra.NoArgs, RunE: NeedsCommand}
		show := &cobra.Command{Use: "show ID", Args: cobra.ExactArgs(1), RunE: func(*cobra.Command, []string) error { return nil }}
		show.Flags().String("data", "", "directory")
		require.NoError(t, show.MarkFlagRequired("data"))
		group.AddCommand(show)
		root.AddCommand(group)
		return root
	}
	for args, want := range map[string]string{
		"group":                 "tool: a command is missing; see tool group --help\n",
		"group shwo":            "tool: unknown command shwo; did you mean show?; see tool group --help\n",
		"group show":            "tool: an argument is missing; write tool group show ID; --data is missing: give the directory; see tool group show --help\n",
		"group show --date x y": "tool: unknown flag --date; did you mean --data?; --data is missing: give the directory; see tool group show --help\n",
	} {
		env := newTestEnv()
		require.Equal(t, ExitUsage, Run(t.Context(), newRoot, &env.Env, strings.Fields(args)))
		require.Equal(t, want, env.err.String())
	}
	env := newTestEnv()
	require.Equal(t, ExitOK, Run(t.Context(), newRoot, &env.Env, []string{"group", "show", "--data", "x", "y"}))
}

// A name is suggested for a typing error, not for another word.
func TestOnlyCloseNamesAreSuggested(t *testing.T) {
	commands := []string{"get", "mget", "scan", "slots", "drain", "undrain", "probe", "top", "bench", "append", "check", "compact",
		"dump", "repair", "seal", "stats", "serve", "bundle", "checkpoint", "config", "demo"}
	for name, meant := range map[string]string{
		"gte": "get", "mgt": "mget", "slot": "slots", "porbe": "probe", "drian": "drain", "apend": "append", "cehck": "check",
		"chekpiont": "checkpoint", "comapct": "compact", "stat": "stats", "undrian": "undrain", "status": "stats",
	} {
		require.EqualError(t, Unknown("command", name, commands), "unknown command "+name+"; did you mean "+meant+"?")
	}
	for _, name := range []string{"list", "put", "find", "ping", "query", "delete", "count", "start", "remove", "version", "backup", "import", "export", "show"} {
		require.EqualError(t, Unknown("command", name, commands), "unknown command "+name+"")
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "", 3}, {"memroy", "memory", 1}, {"collections", "collection", 1}, {"kitten", "sitting", 3}} {
		require.Equal(t, test.want, distance(test.a, test.b), "%s %s", test.a, test.b)
		require.Equal(t, test.want, distance(test.b, test.a), "%s %s", test.b, test.a)
	}
}
