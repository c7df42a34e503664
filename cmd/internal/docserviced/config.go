package docserviced

import (
	"io"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/settings"
)

// configPrefix is the prefix of the environment variables of settings.
const configPrefix = "DOCSERVICED"

func newConfig(env *cli.Env) *cobra.Command {
	o := newOptions() // with all flags of serve
	command := newServeWith(env, o)
	var explain, asJSON bool
	command.Flags().BoolVar(&explain, "explain", false, "print what serve derives from the settings and from this machine, with the reasons")
	command.Flags().BoolVar(&asJSON, "json", false, "print a JSON object with the value and source of each setting")
	for _, other := range []string{"explain", "json"} {
		settings.Exclude(command, other)
	}
	command.Use = "config [FLAGS OF SERVE]"
	command.Short = "Print the effective settings of serve and their sources"
	command.Long = `Config reads the settings of serve from the command line, the environment and a
file, and prints the result as YAML, each setting with its source: the line of
the file, the variable, a flag, or the default. Save the output to use it with
--config; --json prints an object for programs. Config starts nothing; it
reports invalid settings as serve would.

With --explain it prints instead how serve would divide the memory of this
machine or container, and the limits that follow from it.`
	command.Example = `  docserviced config --config /etc/docserviced.yaml
  docserviced config --collection jobs=/srv/queue/jobs --data /srv/index > docserviced.yaml
  docserviced config --collection jobs=/srv/queue/jobs --data /srv/index --explain`
	command.RunE = func(command *cobra.Command, _ []string) error {
		if explain && asJSON {
			return cli.Usagef("--explain and --json exclude each other; give one of them")
		}
		if explain {
			_, err := io.WriteString(env.Stdout, o.Explain())
			return err
		}
		if asJSON {
			return env.PrintJSON(settings.Values(command))
		}
		text, err := settings.Append(nil, command)
		if err != nil {
			return err
		}
		_, err = env.Stdout.Write(text)
		return err
	}
	return command
}
