package docserviced

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/docservice/collection"
	"docstore/docservice/follow"
	"docstore/internal/vfs"
)

func newReindex(env *cli.Env) *cobra.Command {
	var dataDir string
	command := &cobra.Command{
		Use:   "reindex --data DIR COLLECTION...",
		Short: "Build indexes again from their queues",
		Long: `Reindex requests that the daemon builds the index of each collection again from
its queue. A running daemon begins within a second, a stopped one when it is
started. The present index is served until the other one has read the queue to
its end; /readyz and the page show the progress. Reindex does not wait. Both
indexes need space in --data meanwhile.

A damaged index needs no reindex: it is rebuilt automatically. "check --ids"
shows whether an index differs from its queue.`,
		Example: `  docserviced reindex --data /srv/index jobs`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, names []string) error {
			return reindex(env, dataDir, names)
		},
	}
	addDataFlag(command, &dataDir)
	return command
}

// reindex requests other indexes of all collections, or of none if one has no index. The
// name of a collection stands for all its shards.
func reindex(env *cli.Env, dataDir string, names []string) error {
	known, err := listIndexes(dataDir)
	if err != nil {
		return err
	}
	var chosen []string
	for _, name := range names {
		n := len(chosen)
		for _, one := range known {
			if one == name || strings.HasPrefix(one, name+string(filepath.Separator)) {
				chosen = append(chosen, one)
			}
		}
		if len(chosen) == n {
			return fmt.Errorf("%s has no index of collection %s, only of %s", dataDir, name, strings.Join(known, ", "))
		}
	}
	out := cli.NewOutput(env.Stdout)
	for _, name := range chosen {
		dir, err := follow.StateDir(filepath.Join(dataDir, name))
		if err == nil {
			err = collection.RequestReindex(vfs.OS, dir)
		}
		if err != nil {
			return fmt.Errorf("reindex %s: %w", name, err)
		}
		out.Printf("%s: requested; a running daemon begins within a second, a stopped one when it is started\n", name)
	}
	return out.Flush()
}
