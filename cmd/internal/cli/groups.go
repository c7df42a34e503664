package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// groupsAnnotation has the groups of a command's flags: lines TITLE: NAME NAME...
const groupsAnnotation = "docstore flag groups"

// Group adds a group of flags to the help of a command, before the flags that are in none. It
// panics if the command has no such flag.
func Group(command *cobra.Command, title string, names ...string) {
	for _, name := range names {
		if command.Flags().Lookup(name) == nil {
			panic(fmt.Sprintf("%s has no flag --%s", command.Name(), name))
		}
	}
	if command.Annotations == nil {
		command.Annotations = map[string]string{}
	}
	command.Annotations[groupsAnnotation] += title + ": " + strings.Join(names, " ") + "\n"
}

func init() { cobra.AddTemplateFunc("groupedFlags", groupedFlags) }

// usageTemplate returns the usage of a command, with its flags in groups, and lines of helpColumns.
func usageTemplate(root *cobra.Command) string {
	const flags = "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	template := strings.Replace(root.UsageTemplate(), flags, "{{groupedFlags . | trimTrailingWhitespaces}}", 1)
	return strings.ReplaceAll(template, ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", helpColumns))
}

// groupedFlags returns the help of the flags of a command.
func groupedFlags(command *cobra.Command) string {
	var text strings.Builder
	grouped := map[string]bool{}
	for group := range strings.Lines(command.Annotations[groupsAnnotation]) {
		title, names, _ := strings.Cut(strings.TrimSuffix(group, "\n"), ": ")
		all := strings.Fields(names)
		for _, name := range all {
			grouped[name] = true
		}
		writeFlags(&text, title, command, func(name string) bool { return slices.Contains(all, name) })
	}
	title := "Flags"
	if len(grouped) > 0 {
		title = "Other flags"
	}
	writeFlags(&text, title, command, func(name string) bool { return !grouped[name] })
	return text.String()
}

// writeFlags writes the help of some flags of a command.
func writeFlags(text *strings.Builder, title string, command *cobra.Command, has func(name string) bool) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	command.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if has(f.Name) {
			flags.AddFlag(f)
		}
	})
	if flags.HasAvailableFlags() {
		fmt.Fprintf(text, "%s:\n%s\n", title, flags.FlagUsagesWrapped(helpColumns))
	}
}
