package settings

import (
	"bytes"
	"fmt"
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

// configured runs a command with flags of each kind, and returns its settings as YAML and
// its error.
func configured(t *testing.T, file string, environ []string, args ...string) (settings, problem string) {
	t.Helper()
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	if file != "" {
		path := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		args = append(args, "--config", path)
		defer func() { problem = strings.ReplaceAll(problem, path, "FILE") }()
		defer func() { settings = strings.ReplaceAll(settings, path, "FILE") }()
	}
	var out, stderr bytes.Buffer
	env := &cli.Env{Stdout: &out, Stderr: &stderr, Now: time.Now}
	status := cli.Run(t.Context(), func(*cli.Env) *cobra.Command {
		root := &cobra.Command{Use: "test"}
		command := &cobra.Command{Use: "serve", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
			text, err := Append(nil, c)
			_, _ = fmt.Fprint(&out, string(text))
			return err
		}}
		memory := units.Size(64 << 20)
		flags := command.Flags()
		flags.StringArray("collection", nil, "collections to serve")
		flags.StringSlice("memcached", nil, "")
		flags.Var(&memory, "memory", "")
		flags.Duration("grace", time.Second, "")
		flags.Bool("quiet", false, "")
		require.NoError(t, command.MarkFlagRequired("collection"))
		With(command, "TESTD")
		root.AddCommand(command)
		return root
	}, env, append([]string{"serve"}, args...))
	if status == cli.ExitOK {
		require.Empty(t, stderr.String())
	}
	return out.String(), stderr.String()
}

func TestConfigSources(t *testing.T) {
	var settings string
	t.Run("all of them", func(t *testing.T) { settings = testConfigSources(t) })

	// The output is a file with the same settings.
	again, problem := configured(t, settings, nil)
	require.Empty(t, problem)
	require.Contains(t, again, "- resumes=/srv/resumes")
	require.Contains(t, again, "9s")
}

func testConfigSources(t *testing.T) string {
	settings, problem := configured(t, `
# of the serving machines
collection:
  - jobs=/srv/jobs
  - resumes=/srv/resumes
memory: 2GiB
grace: 5s
quiet: true
`, []string{"TESTD_GRACE=7s", "TESTD_MEMORY=1GiB", "OTHER_MEMORY=3GiB"}, "--grace", "9s")
	require.Empty(t, problem)
	for _, want := range []string{
		"collection: # FILE:3\n    - jobs=/srv/jobs\n    - resumes=/srv/resumes\n",
		"grace: 9s # flag\n", "memory: 1GiB # TESTD_MEMORY\n", "quiet: true # FILE:8\n", "memcached: [] # default\n", "log-level: INFO # default\n",
	} {
		require.Contains(t, strings.Join(strings.FieldsFunc(settings, func(r rune) bool { return r == ' ' }), " "), strings.Join(strings.FieldsFunc(want, func(r rune) bool { return r == ' ' }), " "))
	}
	return settings
}

// TestConfigRefused: all errors are reported together, with their places.
func TestConfigRefused(t *testing.T) {
	for _, test := range []struct {
		name, file string
		environ    []string
		problems   []string
	}{
		{"several at once", "collections: jobs=/srv\nmemory: lots\ngrace: [1s, 2s]\nquiet: {a: b}\n", []string{"TESTD_MEMROY=1", "TESTD_QUIET=perhaps"}, []string{
			"unknown variable TESTD_MEMROY; did you mean TESTD_MEMORY?",
			`TESTD_QUIET "perhaps": write true or false`,
			"FILE:1: unknown key collections; did you mean collection?",
			`FILE:2: memory "lots": write a size, such as 64MiB, 1.5GB or 4096`,
			"FILE:3: grace: write one value, not a list",
			"FILE:4: quiet: want a value or a list of values",
		}},
		{"twice", "collection: a=b\nmemory: 1GiB\nmemory: 2GiB\n", nil, []string{"FILE:3: duplicate key memory"}},
		{"no value", "collection:\n", nil, []string{"FILE:1: collection: has no value; write one, or remove the line"}},
		{"nothing close", "xyzzy: 1\n", nil, []string{"FILE:1: unknown key xyzzy"}},
		{"no mapping", "- a\n- b\n", nil, []string{`FILE:1: want lines of the form "flag: value"`}},
		{"no YAML", "a: b: c\n", nil, []string{"FILE: yaml: "}},
		{"nothing given", "# nothing\n", nil, []string{"--collection is missing: give the collections to serve"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, problem := configured(t, test.file, test.environ)
			for _, want := range test.problems {
				require.Contains(t, problem, want)
			}
			require.Equal(t, 1, strings.Count(problem, "\n"), "one line")
		})
	}
	_, problem := configured(t, "", nil, "--config", "/nowhere/config.yaml")
	require.Contains(t, problem, "/nowhere/config.yaml: no such file")
}

// A variable may be for a flag of another command, and errors of the command's own check
// are reported with the others.
func TestConfigOfSeveralCommands(t *testing.T) {
	t.Setenv("TESTD_COLLECTION", "jobs")
	t.Setenv("TESTD_SERVRES", "a")
	var stderr bytes.Buffer
	status := cli.Run(t.Context(), func(*cli.Env) *cobra.Command {
		root := &cobra.Command{Use: "test"}
		run := func(*cobra.Command, []string) error { return nil }
		get, slots := &cobra.Command{Use: "get", RunE: run}, &cobra.Command{Use: "slots", RunE: run}
		get.Flags().String("collection", "", "")
		slots.Flags().String("servers", "", "")
		slots.PreRunE = func(*cobra.Command, []string) error { return cli.Usagef("--servers is empty") }
		With(slots, "TESTD")
		root.AddCommand(get, slots)
		return root
	}, &cli.Env{Stdout: &stderr, Stderr: &stderr, Now: time.Now}, []string{"slots"})
	require.Equal(t, cli.ExitUsage, status)
	require.Equal(t, "test: unknown variable TESTD_SERVRES; did you mean TESTD_SERVERS?; --servers is empty; see test slots --help\n", stderr.String())
}
