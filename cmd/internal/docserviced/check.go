package docserviced

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/meter"
	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/internal/units"
)

func newCheck(env *cli.Env) *cobra.Command {
	var dataDir string
	var values []string
	var quiet, ids bool
	command := &cobra.Command{
		Use:   "check --data DIR [--collection NAME=QUEUEDIR]...",
		Short: "Verify the indexes of all collections",
		Long: `Check reads and verifies every index in a data directory. It prints the result
for each, and exits with status 1 if one is damaged. An index holds no
documents: delete a damaged one, and the daemon rebuilds it from the queue.
With --collection it also checks that the queue continues the history that the
index has read, and was not restored from an older copy, rewritten or truncated
since. --ids compares every id of the index with the queue, in two seconds or
more for every million entries; "reindex" repairs differences. The daemon may be
running. To check queues, use docstore-updater check.`,
		Example: `  docserviced check --data /srv/index --collection jobs=/srv/queue/jobs
  docserviced check --data /srv/index --collection jobs=/srv/queue/jobs --ids`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if ids && len(values) == 0 {
				return cli.Usagef("--ids needs --collection NAME=QUEUEDIR, to compare with")
			}
			queues := make(map[string]string)
			if len(values) > 0 {
				collections, err := parseCollections(values)
				if err != nil {
					return err
				}
				for _, c := range collections {
					if c.IsURL() {
						return cli.Usagef("--collection %s=%s: give the directory of a queue", c.Name, c.Source)
					}
					queues[c.Name] = c.Source
				}
			}
			return checkIndexes(command.Context(), env, dataDir, queues, ids, quiet)
		},
	}
	addDataFlag(command, &dataDir)
	command.Flags().StringArrayVar(&values, "collection", nil, "NAME=QUEUEDIR: also compare the index with its queue; repeatable")
	command.Flags().BoolVar(&ids, "ids", false, "also compare every id of the index with the queue")
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
// in queues with its queue, with ids in full.
func checkIndexes(ctx context.Context, env *cli.Env, dataDir string, queues map[string]string, ids, quiet bool) error {
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
	damaged, others, different := 0, 0, 0
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted before the index of %s", name)
		}
		started := env.Now()
		dir, err := follow.StateDir(filepath.Join(dataDir, name))
		if err != nil {
			return err
		}
		progress, finish := meter.Work(env, "checking "+name, quiet)
		err = collection.CheckIndex(dir, env.Log, progress)
		finish()
		if err != nil {
			damaged++
			out.Printf("%s: damaged: %v\n", name, err)
		} else {
			out.Printf("%s: sound, verified in %s\n", name, env.Now().Sub(started).Round(time.Millisecond))
		}
		if queueDir, ok := queues[name]; ok && err == nil {
			if err := collection.CheckPosition(dir, queueDir); err != nil {
				others++
				out.Printf("%s: the queue in %s does not continue the history of the index: %v\n", name, queueDir, err)
			} else if ids {
				equal, err := compareIDs(ctx, env, out, name, dir, queueDir, quiet)
				if err != nil {
					return err
				}
				if !equal {
					different++
				}
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	if others > 0 && damaged == 0 {
		return fmt.Errorf("%d of %d queues do not continue their indexes; restore the right files, or, if the queue is right, "+
			"run docserviced reindex", others, len(queues))
	}
	if damaged > 0 {
		return fmt.Errorf("%d of %d indexes in %s are damaged; stop the daemon and delete their directories to have them rebuilt", damaged, len(names), dataDir)
	}
	if different > 0 {
		return fmt.Errorf("%d of %d indexes differ from their queues; docserviced reindex builds them again", different, len(queues))
	}
	return nil
}

// compareIDs compares an index with its queue, and prints the result.
func compareIDs(ctx context.Context, env *cli.Env, out *cli.Output, name, dir, queueDir string, quiet bool) (equal bool, err error) {
	progress, finish := meter.Work(env, "comparing "+name, quiet)
	c, err := collection.CompareIndex(ctx, dir, queueDir, env.Now(), collection.CompareMemory, progress)
	finish()
	if err != nil {
		return false, fmt.Errorf("comparing the index of %s with %s: %w", name, queueDir, err)
	}
	out.Printf("%s: %s as in the queue", name, units.FormatCountOf(c.Equal, "id is", "ids are"))
	if c.Later > 0 {
		out.Printf(", %s not been compared, because the queue has newer entries", units.FormatCountOf(c.Later, "id has", "ids have"))
	}
	if c.Differences() > 0 {
		out.Printf(", %s missing, %s wrong, %s superfluous", units.FormatCountOf(c.Missing, "is", "are"), units.FormatCountOf(c.Wrong, "is", "are"), units.FormatCountOf(c.Extra, "is", "are"))
	}
	out.Printf("\n")
	for _, example := range c.Examples {
		out.Printf("  %s\n", example)
	}
	return c.Differences() == 0, nil
}
