package main

import (
	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
)

// configPrefix begins the environment variables that settings come from.
const configPrefix = "DOCSERVICED"

func newConfig(env *cli.Env) *cobra.Command {
	command := newServe(env) // with all its flags
	command.Use = "config [FLAGS OF SERVE]"
	command.Short = "Print the settings that serve would have, with their sources"
	command.Long = `Config takes what serve takes, from the command line, the environment and a file,
and prints the settings that come of it as YAML, each with its source: the line of the
file, the variable, a flag, or the default. What it prints can be saved and given to
--config. Nothing is started; what is wrong is reported as serve would.`
	command.Example = `  docserviced config --config /etc/docserviced.yaml
  docserviced config --collection jobs=/srv/queue/jobs --data /srv/index > docserviced.yaml`
	command.RunE = func(command *cobra.Command, _ []string) error {
		text, err := cli.AppendSettings(nil, command)
		if err != nil {
			return err
		}
		_, err = env.Stdout.Write(text)
		return err
	}
	return command
}
