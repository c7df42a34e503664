package updater

import (
	"fmt"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/queue/shardset"
)

func newSeal(env *cli.Env) *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use:   "seal --queue DIR",
		Short: "Seal the segment that a killed updater has left open",
		Long: `Seal completes the last segment with its footer, so that copying *.seg copies
all documents. An updater seals it when it stops, and the next updater would:
use seal if no updater will run soon. If all segments are sealed, nothing is
changed. No updater may be writing.`,
		Example: `  docstore-updater seal --queue /srv/queue/jobs`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return seal(env, dir)
		},
	}
	addQueueFlag(command, &dir)
	return command
}

func seal(env *cli.Env, dir string) (err error) {
	if _, err := readLayout(dir); err != nil { // before a shard that is missing is created
		return err
	}
	writer, err := shardset.Open(dir, &shardset.Options{Logger: env.Log})
	if err != nil {
		return cannotOpen(dir, err)
	}
	defer func() {
		if closeErr := writer.Close(); err == nil {
			err = closeErr
		}
	}()
	if err := writer.Seal(); err != nil {
		return fmt.Errorf("sealing the queue %s: %w", dir, err)
	}
	return nil
}
