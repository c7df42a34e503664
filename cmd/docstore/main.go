// Docstore has the commands of docstore-updater, docserviced and boxcar in one program.
package main

import (
	"os"
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"docstore/cmd/internal/boxcar"
	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/docserviced"
	"docstore/cmd/internal/man"
	"docstore/cmd/internal/updater"
)

func main() { cli.Main(rootOf(os.Args[0])) }

// programs are those whose commands docstore has.
var programs = []struct {
	name string
	root func(*cli.Env) *cobra.Command
}{{"docstore-updater", updater.New}, {"docserviced", docserviced.New}, {"boxcar", boxcar.New}}

// rootOf returns the root command for the name under which this program is run: packages install
// the other programs as links to docstore.
func rootOf(path string) func(*cli.Env) *cobra.Command {
	for _, program := range programs {
		if program.name == filepath.Base(path) {
			return program.root
		}
	}
	return newRoot
}

func newRoot(env *cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "docstore",
		Short: "Append, serve and fetch documents",
		Long: `Docstore appends documents to queues, serves them by id, and fetches them. It
has the commands of the programs docstore-updater, docserviced and boxcar. The
shortest way from a file to HTTP:

  docstore serve --load jobs=jobs.ndjson`,
		Args: cobra.NoArgs,
		RunE: cli.NeedsCommand,
	}
	names := map[string]string{}
	for _, p := range programs {
		program := p.root(env)
		root.AddGroup(&cobra.Group{ID: program.Name(), Title: program.Short + ":"})
		for _, command := range program.Commands() {
			if command.Hidden {
				continue // man pages
			}
			before := command.CommandPath()
			if name, found := renamed[before]; found {
				command.Use = name + command.Use[len(command.Name()):]
			}
			command.GroupID = program.Name()
			root.AddCommand(command)
			names[before] = command.CommandPath()
		}
	}
	renameIn(root, names)
	root.AddCommand(man.New(root))
	return root
}

// renamed has the names of commands whose own ones two programs use.
var renamed = map[string]string{
	"docstore-updater get":     "queue-get",
	"docstore-updater explain": "queue-explain",
	"docserviced check":        "index-check",
}

// programCommand matches a command in a help text.
var programCommand = regexp.MustCompile(`\b(docstore-updater|docserviced|boxcar) [a-z]+`)

// renameIn replaces the names of commands in the help texts of a command and those below it.
func renameIn(command *cobra.Command, names map[string]string) {
	replace := func(text *string) {
		*text = programCommand.ReplaceAllStringFunc(*text, func(name string) string {
			if now, found := names[name]; found {
				return now
			}
			return name
		})
	}
	replace(&command.Long)
	replace(&command.Example)
	command.Flags().VisitAll(func(f *pflag.Flag) { replace(&f.Usage) })
	for _, child := range command.Commands() {
		renameIn(child, names)
	}
}
