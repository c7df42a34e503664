package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/docservice"
	"docstore/docservice/follow"
)

func newCheck(env *cli.Env) *cobra.Command {
	var dataDir string
	var values []string
	var quiet bool
	command := &cobra.Command{
		Use:   "check --data DIR [--collection NAME=QUEUEDIR]...",
		Short: "Verify the indexes of all collections",
		Long: `Check reads and verifies every index in a data directory. It prints the result
for each, and exits with status 1 if one is damaged. An index holds no
documents: delete a damaged one, and the daemon rebuilds it from the queue.
With --collection it also checks that the queue continues the history that the
index has read, and was not restored from an older copy, rewritten or truncated
since. The daemon may be running. To check queues, use docstore-updater check.`,
		Example: `  docserviced check --data /srv/index --collection jobs=/srv/queue/jobs`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			queues := make(map[string]string)
			if len(values) > 0 {
				collections, err := parseCollections(values)
				if err != nil {
					return err
				}
				for _, c := range collections {
					if isURL(c.source) {
						return cli.Usagef("--collection %s=%s: give the directory of a queue", c.name, c.source)
					}
					queues[c.name] = c.source
				}
			}
			return checkIndexes(command.Context(), env, dataDir, queues, quiet)
		},
	}
	addDataFlag(command, &dataDir)
	command.Flags().StringArrayVar(&values, "collection", nil, "NAME=QUEUEDIR: also compare the index with its queue; repeatable")
	command.Flags().BoolVar(&quiet, "quiet", false, "show no progress")
	return command
}

// addDataFlag adds the required flag --data.
func addDataFlag(command *cobra.Command, dir *string) {
	command.Flags().StringVar(dir, "data", "", "directory of the indexes")
	if err := command.MarkFlagRequired("data"); err != nil {
		panic(err) // the flag was just defined
	}
}

// checkIndexes verifies the indexes in dataDir, and compares the index of each collection
// in queues with its queue.
func checkIndexes(ctx context.Context, env *cli.Env, dataDir string, queues map[string]string, quiet bool) error {
	names, err := listIndexes(dataDir)
	if err != nil {
		return err
	}
	for name := range queues {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%s has no index of collection %s", dataDir, name)
		}
	}
	out := cli.NewOutput(env.Stdout)
	damaged, others := 0, 0
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted before the index of %s", name)
		}
		started := env.Now()
		var meter *cli.Meter
		dir, err := follow.StateDir(filepath.Join(dataDir, name))
		if err != nil {
			return err
		}
		err = docservice.CheckIndex(dir, env.Log, func(done, total int64) {
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
		if queueDir, ok := queues[name]; ok && err == nil {
			if err := docservice.CheckPosition(dir, queueDir); err != nil {
				others++
				out.Printf("%s: the queue in %s does not continue the history of the index: %v\n", name, queueDir, err)
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	if others > 0 && damaged == 0 {
		return fmt.Errorf("%d of %d queues do not continue their indexes; restore the right files, or, if the queue is right, "+
			"stop the daemon and delete the index's directory in %s to have it rebuilt", others, len(queues), dataDir)
	}
	if damaged > 0 {
		return fmt.Errorf("%d of %d indexes in %s are damaged; stop the daemon and delete their directories to have them rebuilt", damaged, len(names), dataDir)
	}
	return nil
}
