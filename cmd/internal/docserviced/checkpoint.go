package docserviced

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/meter"
	"docstore/docservice/follow"
)

func newCheckpoint(env *cli.Env) *cobra.Command {
	var dataDir string
	var quiet bool
	command := &cobra.Command{
		Use:   "checkpoint --data DIR TARGET",
		Short: "Copy the indexes of all collections with hard links",
		Long: `Checkpoint copies all indexes to the new directory TARGET, for use as --data of
another daemon: it continues from there and reads only newer entries of its
queues, instead of indexing them from the beginning. The daemon may be running.
On the same file system TARGET takes little time and space, because tables are
hard links; elsewhere they are copied.`,
		Example: `  docserviced checkpoint --data /srv/index /srv/index-copy`,
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return checkpoint(command.Context(), env, dataDir, args[0], quiet)
		},
	}
	addDataFlag(command, &dataDir)
	command.Flags().BoolVar(&quiet, "quiet", false, "show no progress")
	return command
}

// checkpoint copies all indexes, or none: it writes to a temporary directory next to the
// target and renames it.
func checkpoint(ctx context.Context, env *cli.Env, dataDir, target string, quiet bool) (err error) {
	names, err := listIndexes(dataDir)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s already exists; choose another name", target)
	}
	building := filepath.Clean(target) + ".building"
	if err := os.Mkdir(building, 0o777); err != nil {
		return fmt.Errorf("%w; if an earlier checkpoint was interrupted, delete it", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(building))
		}
	}()
	sizes, total := indexSizes(dataDir, names)
	var bar *meter.Meter
	if !quiet {
		bar = meter.New(env, "copying", total)
	}
	defer bar.Finish()
	done := int64(0)
	for _, name := range names {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted before the index of %s; %s was not created", name, target)
		}
		if err := follow.CheckpointIndex(filepath.Join(dataDir, name), filepath.Join(building, name), env.Log); err != nil {
			return fmt.Errorf("checkpoint of %s: %w", name, err)
		}
		done += sizes[name]
		bar.Update(0, done)
	}
	return moveDir(building, target)
}

// indexSizes returns the sizes of the indexes and their sum, as far as they can be
// determined.
func indexSizes(dataDir string, names []string) (sizes map[string]int64, total int64) {
	sizes = make(map[string]int64)
	for _, name := range names {
		// Errors are ignored: the sizes are only for the progress.
		_ = filepath.WalkDir(filepath.Join(dataDir, name), func(_ string, entry fs.DirEntry, err error) error {
			if entry == nil || !entry.Type().IsRegular() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				sizes[name] += info.Size()
			}
			return err
		})
		total += sizes[name]
	}
	return sizes, total
}
