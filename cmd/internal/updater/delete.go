package updater

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/queue"
)

func newDelete(env *cli.Env) *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use:   "delete ID... --queue DIR",
		Short: "Append deletes of documents to a queue",
		Long: `Delete appends a delete of each id, durably, and closes the queue's segment.
Servers do not find the documents any more once they have the segment. Their
bytes remain in older segments until "compact" removes them. An id that has no
document is no error. The position of "append --resume" does not change.`,
		Example: `  docstore-updater delete 4711 4712 --queue /srv/queue/jobs`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, ids []string) error {
			for _, id := range ids { // before anything is appended
				if err := checkID(id); err != nil {
					return err
				}
			}
			return deleteAll(env, dir, ids)
		},
	}
	addQueueFlag(command, &dir)
	return command
}

func deleteAll(env *cli.Env, dir string, ids []string) (err error) {
	if err := requireQueue(dir); err != nil {
		return err
	}
	w, err := (&appendOptions{queueDir: dir, codec: queue.DefaultCodec, segmentSize: queue.DefaultSegmentBytes}).openQueue(env, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for _, id := range ids {
		if err := w.Put(queue.Record{ID: []byte(id), Delete: true}); err != nil {
			return fmt.Errorf("deleting %q: %w", id, err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("deleting in %s: %w", dir, err)
	}
	env.Log.Info("deleted", "ids", len(ids))
	return nil
}
