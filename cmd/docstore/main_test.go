package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/cli/clitest"
)

// TestHelpTexts checks the help texts against the commands.
func TestHelpTexts(t *testing.T) { clitest.Help(t, newRoot, "operators") }

// Every command of the programs is one of docstore, with its own flags.
func TestHasAllCommands(t *testing.T) {
	root := newRoot(&cli.Env{})
	names := map[string]bool{}
	for _, command := range root.Commands() {
		require.False(t, names[command.Name()], "two commands %s", command.Name())
		names[command.Name()] = true
	}
	text := help(root)
	for _, program := range programs {
		for _, command := range program.root(&cli.Env{}).Commands() {
			name := command.Name()
			if now, found := renamed[command.CommandPath()]; found {
				name = now
			}
			found, _, err := root.Find([]string{name})
			require.NoError(t, err)
			require.Equal(t, name, found.Name())
			require.NotRegexp(t, `\b`+command.CommandPath()+`\b`, text)
		}
	}
}

// help returns the texts of a command and those below it.
func help(command *cobra.Command) string {
	text := strings.Join([]string{command.Long, command.Example, command.Flags().FlagUsages()}, "\n")
	for _, child := range command.Commands() {
		text += help(child)
	}
	return text
}

// Links to the program are the other programs.
func TestLinks(t *testing.T) {
	for path, name := range map[string]string{
		"/usr/bin/docserviced": "docserviced", "boxcar": "boxcar", "./docstore-updater": "docstore-updater", "bin/docstore": "docstore", "other": "docstore",
	} {
		require.Equal(t, name, rootOf(path)(&cli.Env{}).Name(), path)
	}
}

// Errors name the command that was run.
func TestErrors(t *testing.T) {
	var stderr bytes.Buffer
	env := &cli.Env{Stdout: &stderr, Stderr: &stderr, Now: time.Now}
	require.Equal(t, cli.ExitUsage, cli.Run(t.Context(), newRoot, env, []string{"index-check"}))
	require.Equal(t, "docstore: --data is missing: give the directory of the indexes; see docstore index-check --help\n", stderr.String())
}
