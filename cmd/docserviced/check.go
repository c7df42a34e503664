package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"docstore/docservice"
	"docstore/internal/cli"
)

func newCheck(env *cli.Env) *cobra.Command {
	var dataDir string
	var quiet bool
	command := &cobra.Command{
		Use:   "check --data DIR",
		Short: "Verify the indexes of all collections",
		Long: `Check reads every index in a data directory and verifies all of it. It tells about
each on standard output, and exits with status 1 if one is damaged. An index holds
no documents: delete a damaged one, and the daemon builds it anew from the queue.
The daemon may be running. For queues there is docstore-updater check.`,
		Example: `  docserviced check --data /srv/index`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return checkIndexes(command.Context(), env, dataDir, quiet)
		},
	}
	addDataFlag(command, &dataDir)
	command.Flags().BoolVar(&quiet, "quiet", false, "show no progress")
	return command
}

// addDataFlag gives a command its --data.
func addDataFlag(command *cobra.Command, dir *string) {
	command.Flags().StringVar(dir, "data", "", "directory of the indexes")
	if err := command.MarkFlagRequired("data"); err != nil {
		panic(err) // the flag was defined a line above
	}
}

func checkIndexes(ctx context.Context, env *cli.Env, dataDir string, quiet bool) error {
	names, err := listIndexes(dataDir)
	if err != nil {
		return err
	}
	out := cli.NewOutput(env.Stdout)
	damaged := 0
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted before the index of %s", name)
		}
		started := env.Now()
		var meter *cli.Meter
		err := docservice.CheckIndex(filepath.Join(dataDir, name), env.Log, func(done, total int64) {
			if meter == nil && !quiet {
				meter = cli.NewMeter(env, "checking "+name, total)
			}
			meter.SetTotal(total)
			meter.Update(0, done)
		})
		meter.Finish()
		if err != nil {
			damaged++
			out.Printf("%s: damaged: %v\n", name, err)
		} else {
			out.Printf("%s: sound, verified in %s\n", name, env.Now().Sub(started).Round(time.Millisecond))
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	if damaged > 0 {
		return fmt.Errorf("%d of %d indexes in %s are damaged; stop the daemon, delete their directories, and they are built anew", damaged, len(names), dataDir)
	}
	return nil
}
