package docserviced

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/meter"
	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/internal/units"
)

func newCheck(env *cli.Env) *cobra.Command {
	c := checker{env: env}
	var values []string
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
running. With --json check prints an object per index and line. To check queues,
use docstore-updater check.`,
		Example: `  docserviced check --data /srv/index --collection jobs=/srv/queue/jobs
  docserviced check --data /srv/index --collection jobs=/srv/queue/jobs --ids`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if c.ids && len(values) == 0 {
				return cli.Usagef("--ids needs --collection NAME=QUEUEDIR, to compare with")
			}
			c.queues = make(map[string]string)
			if len(values) > 0 {
				collections, err := parseCollections(values)
				if err != nil {
					return err
				}
				for _, given := range collections {
					if given.IsURL() {
						return cli.Usagef("--collection %s=%s: give the directory of a queue", given.Name, given.Source)
					}
					c.queues[given.Name] = given.Source
				}
			}
			return c.run(command.Context())
		},
	}
	addDataFlag(command, &c.dataDir)
	command.Flags().StringArrayVar(&values, "collection", nil, "NAME=QUEUEDIR: also compare the index with its queue; repeatable")
	command.Flags().BoolVar(&c.ids, "ids", false, "also compare every id of the index with the queue")
	command.Flags().BoolVar(&c.json, "json", false, "print a JSON object per index and line")
	command.Flags().BoolVar(&c.quiet, "quiet", false, "show no progress")
	return command
}

// addDataFlag adds the required flag --data.
func addDataFlag(command *cobra.Command, dir *string) {
	command.Flags().StringVar(dir, "data", "", "directory of the indexes")
	if err := command.MarkFlagRequired("data"); err != nil {
		panic(err) // the flag was just defined
	}
}

// checker is a run of the command.
type checker struct {
	env              *cli.Env
	dataDir          string
	queues           map[string]string // by collection; compared with the indexes
	ids, json, quiet bool
}

// checkedIndex is a line of check --json.
type checkedIndex struct {
	Collection string                 `json:"collection"` // and its shard
	Damage     string                 `json:"damage,omitempty"`
	Seconds    float64                `json:"seconds"`         // of the verification
	Queue      string                 `json:"queue,omitempty"` // compared with the index
	Fork       string                 `json:"fork,omitempty"`  // why the queue does not continue the index
	IDs        *collection.Comparison `json:"ids,omitempty"`
}

func (c *checker) run(ctx context.Context) error {
	names, err := listIndexes(c.dataDir)
	if err != nil {
		return err
	}
	for name := range c.queues {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%s has no index of collection %s", c.dataDir, name)
		}
	}
	out := cli.NewOutput(c.env.Stdout)
	damaged, forked, different := 0, 0, 0
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted before the index of %s", name)
		}
		found, err := c.check(ctx, name)
		if err != nil {
			return err
		}
		switch {
		case found.Damage != "":
			damaged++
		case found.Fork != "":
			forked++
		case found.IDs != nil && found.IDs.Differences() > 0:
			different++
		}
		if c.json {
			out.PrintJSON(found)
		} else {
			found.print(out)
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	switch {
	case damaged > 0:
		return fmt.Errorf("%d of %d indexes in %s are damaged; stop the daemon and delete their directories to have them rebuilt", damaged, len(names), c.dataDir)
	case forked > 0:
		return fmt.Errorf("%d of %d queues do not continue their indexes; restore the right files, or, if the queue is right, "+
			"run docserviced reindex", forked, len(c.queues))
	case different > 0:
		return fmt.Errorf("%d of %d indexes differ from their queues; docserviced reindex builds them again", different, len(c.queues))
	}
	return nil
}

// check verifies an index, and compares it with its queue.
func (c *checker) check(ctx context.Context, name string) (found checkedIndex, err error) {
	found.Collection = name
	dir, err := follow.StateDir(filepath.Join(c.dataDir, name))
	if err != nil {
		return found, err
	}
	started := c.env.Now()
	progress, finish := meter.Work(c.env, "checking "+name, c.quiet)
	err = collection.CheckIndex(dir, c.env.Log, progress)
	finish()
	found.Seconds = c.env.Now().Sub(started).Seconds()
	if err != nil {
		found.Damage = err.Error()
		return found, nil //nolint:nilerr // a finding
	}
	queueDir, given := c.queues[name]
	if !given {
		return found, nil
	}
	found.Queue = queueDir
	if err := collection.CheckPosition(dir, queueDir); err != nil {
		found.Fork = err.Error()
		return found, nil //nolint:nilerr // a finding
	}
	if !c.ids {
		return found, nil
	}
	progress, finish = meter.Work(c.env, "comparing "+name, c.quiet)
	ids, err := collection.CompareIndex(ctx, dir, queueDir, c.env.Now(), collection.CompareMemory, progress)
	finish()
	if err != nil {
		return found, fmt.Errorf("comparing the index of %s with %s: %w", name, queueDir, err)
	}
	found.IDs = &ids
	return found, nil
}

func (f *checkedIndex) print(out *cli.Output) {
	if f.Damage != "" {
		out.Printf("%s: damaged: %s\n", f.Collection, f.Damage)
		return
	}
	out.Printf("%s: sound, verified in %s\n", f.Collection, units.FormatSeconds(f.Seconds))
	if f.Fork != "" {
		out.Printf("%s: the queue in %s does not continue the history of the index: %s\n", f.Collection, f.Queue, f.Fork)
	}
	if f.IDs == nil {
		return
	}
	c := f.IDs
	out.Printf("%s: %s as in the queue", f.Collection, units.FormatCountOf(c.Equal, "id is", "ids are"))
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
}
