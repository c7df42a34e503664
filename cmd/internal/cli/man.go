package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newMan is a hidden command that writes a man page for each command, for packages.
func newMan(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write a man page for each command to a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			root.DisableAutoGenTag = true
			keepIndents(root)
			date := ThisBuild().Time // the same page from the same source
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Docstore", Date: &date}, args[0])
		},
	}
}

// keepIndents has what is indented in descriptions stay as it is: to the man pages'
// generator that takes four spaces more than these have.
func keepIndents(command *cobra.Command) {
	command.Long = strings.ReplaceAll(command.Long, "\n  ", "\n      ")
	for _, child := range command.Commands() {
		keepIndents(child)
	}
}
