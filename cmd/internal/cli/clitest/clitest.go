// Package clitest checks what the commands say about themselves.
package clitest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
)

var flagsIn = regexp.MustCompile(`--([a-z][a-z0-9-]*)`)

// Help requires of each command below a root that it describes itself, that what it says
// names no flag that there is none of, that its examples are command lines that it
// understands, and that its man page has all of its flags. others are flags of other
// programs that it may name.
func Help(t *testing.T, newRoot func(*cli.Env) *cobra.Command, others ...string) {
	t.Helper()
	man := t.TempDir()
	env := &cli.Env{Stdout: os.Stdout, Stderr: os.Stderr}
	require.Equal(t, cli.ExitOK, cli.Run(t.Context(), newRoot, env, []string{"man", man}))
	root := newRoot(&cli.Env{})
	anywhere := map[string]bool{"help": true, "version": true, cli.LogLevelFlag: true}
	for _, other := range others {
		anywhere[other] = true
	}
	for _, command := range root.Commands() {
		command.Flags().VisitAll(func(f *pflag.Flag) { anywhere[f.Name] = true })
	}
	for _, command := range root.Commands() {
		t.Run(command.Name(), func(t *testing.T) {
			require.NotEmpty(t, command.Short)
			require.NotEmpty(t, command.Long)
			for _, name := range flagsIn.FindAllStringSubmatch(command.Long+command.Use, -1) {
				require.True(t, anywhere[name[1]], "its help speaks of --%s", name[1])
			}
			for _, line := range examples(command.Example) {
				checkExample(t, newRoot, command.CommandPath(), line)
			}
			page, err := os.ReadFile(filepath.Join(man, root.Name()+"-"+command.Name()+".1"))
			require.NoError(t, err)
			command.Flags().VisitAll(func(f *pflag.Flag) {
				require.NotEmpty(t, f.Usage, "--%s", f.Name)
				require.Contains(t, strings.ReplaceAll(string(page), `\-`, "-"), "--"+f.Name, "the man page")
			})
		})
	}
}

// examples are the command lines of an example, those of several lines joined.
func examples(text string) (lines []string) {
	for _, line := range strings.Split(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// quoted are the words of a shell that have blanks in them.
var quoted = regexp.MustCompile(`'[^']*'`)

// checkExample requires that a command understands a command line, as far as that can be
// told without running it.
func checkExample(t *testing.T, newRoot func(*cli.Env) *cobra.Command, path, line string) {
	t.Helper()
	line, _, _ = strings.Cut(quoted.ReplaceAllString(line, "QUOTED"), "#")
	line, _, _ = strings.Cut(line, "|")
	line, _, _ = strings.Cut(line, ">")
	line, _, _ = strings.Cut(line, "<")
	require.True(t, strings.HasPrefix(line, path), "%s: an example is of another command: %s", path, line)
	root := newRoot(&cli.Env{})
	root.PersistentFlags().String(cli.LogLevelFlag, "", "")
	command, args, err := root.Find(strings.Fields(line)[1:])
	require.NoError(t, err, line)
	require.NoError(t, command.ParseFlags(args), line)
	require.NoError(t, command.ValidateRequiredFlags(), line)
	require.NoError(t, command.ValidateArgs(command.Flags().Args()), line)
}
