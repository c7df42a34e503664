// Package man writes the man pages of a command.
package man

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"docstore/internal/buildinfo"
)

// New returns a hidden command that writes a man page for each command, for packages.
func New(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write a man page for each command to a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			root.DisableAutoGenTag = true
			keepIndents(root)
			date := buildinfo.This().Time // reproducible output
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Docstore", Date: &date}, args[0])
		},
	}
}

// keepIndents keeps indented text in descriptions unchanged: the generator of the man pages
// needs four more spaces.
func keepIndents(command *cobra.Command) {
	command.Long = strings.ReplaceAll(command.Long, "\n  ", "\n      ")
	for _, child := range command.Commands() {
		keepIndents(child)
	}
}
