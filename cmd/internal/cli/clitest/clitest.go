// Package clitest checks the help texts of the commands.
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

// textWidth is the maximum length of a line of text; indented tables may be wider.
const textWidth = 80

// Help requires of each command below a root that it has descriptions, that they fit a
// terminal and name only existing flags, that its examples are valid command lines, and that its man page lists
// all of its flags. others are flags of other programs that the descriptions may name.
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
	commands := below(root)
	for _, command := range commands {
		command.Flags().VisitAll(func(f *pflag.Flag) { anywhere[f.Name] = true })
	}
	for _, command := range commands {
		t.Run(command.Name(), func(t *testing.T) {
			require.NotEmpty(t, command.Short)
			require.NotEmpty(t, command.Long)
			for line := range strings.Lines(command.Long) {
				require.True(t, strings.HasPrefix(line, " ") || len(line) <= textWidth+1, "wider than %d: %s", textWidth, line)
			}
			for _, name := range flagsIn.FindAllStringSubmatch(command.Long+command.Use, -1) {
				require.True(t, anywhere[name[1]], "the help names an unknown flag --%s", name[1])
			}
			for _, line := range examples(command.Example) {
				checkExample(t, newRoot, command.CommandPath(), line)
			}
			page, err := os.ReadFile(filepath.Join(man, strings.ReplaceAll(command.CommandPath(), " ", "-")+".1"))
			require.NoError(t, err)
			command.Flags().VisitAll(func(f *pflag.Flag) {
				require.NotEmpty(t, f.Usage, "--%s", f.Name)
				require.Contains(t, strings.ReplaceAll(string(page), `\-`, "-"), "--"+f.Name, "the man page")
			})
		})
	}
}

// below returns the commands below a command, at any depth, except hidden ones.
func below(parent *cobra.Command) (commands []*cobra.Command) {
	for _, command := range parent.Commands() {
		if !command.Hidden {
			commands = append(append(commands, command), below(command)...)
		}
	}
	return commands
}

// examples returns the command lines of an example, with continuation lines joined.
func examples(text string) (lines []string) {
	for _, line := range strings.Split(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// quoted matches shell words with blanks.
var quoted = regexp.MustCompile(`'[^']*'`)

// checkExample requires that a command line is valid, as far as that can be checked without
// running it.
func checkExample(t *testing.T, newRoot func(*cli.Env) *cobra.Command, path, line string) {
	t.Helper()
	line, _, _ = strings.Cut(quoted.ReplaceAllString(line, "QUOTED"), "#")
	line, _, _ = strings.Cut(line, "|")
	line, _, _ = strings.Cut(line, ">")
	line, _, _ = strings.Cut(line, "<")
	require.True(t, strings.HasPrefix(line, path), "%s: the example is for another command: %s", path, line)
	root := newRoot(&cli.Env{})
	root.PersistentFlags().String(cli.LogLevelFlag, "", "")
	command, args, err := root.Find(strings.Fields(line)[1:])
	require.NoError(t, err, line)
	require.NoError(t, command.ParseFlags(args), line)
	require.NoError(t, command.ValidateRequiredFlags(), line)
	require.NoError(t, command.ValidateArgs(command.Flags().Args()), line)
}
