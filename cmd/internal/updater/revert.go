package updater

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/internal/units"
	"docstore/queue"
	"docstore/queue/publish"
)

// undoneLine is a line of revert --list.
type undoneLine struct {
	ID       string `json:"id"`
	IDBytes  []byte `json:"id_base64"`
	Deleted  bool   `json:"deleted"`  // the change that was undone was a delete
	Manifest uint64 `json:"manifest"` // the first one with the change; 0: it was not published
	Bad      bool   `json:"bad"`      // that manifest is marked as bad
}

func newRevert(env *cli.Env) *cobra.Command {
	var flags bucketFlags
	var dir, list string
	var number uint64
	command := &cobra.Command{
		Use:   "revert --bucket URL --queue DIR --to MANIFEST",
		Short: "Append what makes a queue equal to a manifest, and publish it",
		Long: `Revert compares the queue with an earlier manifest. For each id that differs it
appends the document of the manifest, with its expiry, or a delete; then it
seals and publishes. Later entries of the queue are undone, published or not,
but "append --resume" continues after them. The manifests between the two are
marked as bad. Validate and announce the new manifest: after "rollback" this
ends the pin of all servers.

Correct changes that were made since are undone, too. --list writes a line of
JSON for each undone change, with its id and the manifest that had it, so that
they can be appended again.

No updater may be writing. The files of the manifest that the queue does not
have are downloaded into DIR.manifest-N, which is removed at the end.`,
		Example: `  docstore-updater revert --bucket s3://company-docs/jobs --queue /srv/queue/jobs --to 41 --list undone.ndjson`,
		Args:    cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := requireDir(dir); err != nil {
			return err
		}
		err := revert(command.Context(), env, &flags, dir, number, list)
		return lifeError("revert", dir, flags.url, err)
	}
	flags.add(command)
	addQueueFlag(command, &dir)
	addRequiredTo(command, &number, "number of the manifest")
	command.Flags().StringVar(&list, "list", "", "file to which the undone changes are written")
	return command
}

// lifeError adds the queue and the bucket to an error.
func lifeError(operation, dir, url string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, queue.ErrLocked):
		return cannotOpen(dir, err)
	}
	return fmt.Errorf("%s %s with %s: %w", operation, dir, url, err)
}

// addRequiredTo adds the required flag --to.
func addRequiredTo(command *cobra.Command, number *uint64, usage string) {
	command.Flags().Uint64Var(number, "to", 0, usage)
	if err := command.MarkFlagRequired("to"); err != nil {
		panic(err) // the flag was just defined
	}
}

// revert reverts the queue and writes the list.
func revert(ctx context.Context, env *cli.Env, flags *bucketFlags, dir string, number uint64, list string) (err error) {
	b, err := flags.open(ctx, env.Log)
	if err != nil {
		return err
	}
	defer b.Close()
	var undone func(publish.Undone) error
	if list != "" {
		var file *os.File
		if file, err = os.Create(list); err != nil {
			return err
		}
		out := cli.NewOutput(file)
		defer func() { err = errors.Join(err, out.Flush(), file.Close()) }()
		undone = func(u publish.Undone) error {
			line, err := json.Marshal(undoneLine{ID: string(u.ID), IDBytes: u.ID, Deleted: u.Deleted, Manifest: u.Manifest, Bad: u.Bad})
			out.Printf("%s\n", line)
			return errors.Join(err, out.Err())
		}
	}
	reverted, err := publish.Revert(ctx, b, dir, number, undone, &publish.Options{Now: env.Now})
	if err != nil {
		return err
	}
	out := cli.NewOutput(env.Stdout)
	out.Printf("manifest %d equals manifest %d: %s restored, %d deleted\n", reverted.Ref.Number, number,
		units.FormatCountOf(reverted.Restored, "document", "documents"), reverted.Deleted)
	if reverted.Good > 0 {
		out.Printf("%s of manifests that are not marked as bad, or of none, undone; append them again%s\n",
			units.FormatCountOf(reverted.Good, "change", "changes"), listHint(list))
	}
	return out.Flush()
}

func listHint(list string) string {
	if list == "" {
		return " (--list names them)"
	}
	return ": see " + list
}

func newDiscard(env *cli.Env) *cobra.Command {
	var flags bucketFlags
	var dir string
	var number uint64
	command := &cobra.Command{
		Use:   "discard --bucket URL --queue DIR [--to MANIFEST]",
		Short: "Remove the entries of a manifest that was never served",
		Long: `Discard removes from the queue the entries of a manifest that was refused and
never served, the first such one unless --to names another, and all later
entries, published or not. "append --resume" then continues where the manifest
before ends. The numbers of the removed segments are not used again. If a
server may have served the manifest, also as a canary, use "revert".

No updater may be writing. If discard is interrupted, run it again: until then
the queue cannot be published.`,
		Example: `  docstore-updater discard --bucket s3://company-docs/jobs --queue /srv/queue/jobs`,
		Args:    cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := requireDir(dir); err != nil {
			return err
		}
		return lifeError("discard", dir, flags.url, discard(command.Context(), env, &flags, dir, number))
	}
	flags.add(command)
	addQueueFlag(command, &dir)
	command.Flags().Uint64Var(&number, "to", 0, "number of the manifest; 0 is the first that was refused and never served")
	return command
}

func discard(ctx context.Context, env *cli.Env, flags *bucketFlags, dir string, number uint64) error {
	b, err := flags.open(ctx, env.Log)
	if err != nil {
		return err
	}
	defer b.Close()
	discarded, err := publish.Discard(ctx, b, dir, number, &publish.Options{Now: env.Now})
	if err != nil {
		return err
	}
	out := cli.NewOutput(env.Stdout)
	out.Printf("manifests %d to %d discarded: the queue ends with manifest %d, without %s\n", discarded.From, discarded.To, discarded.Parent,
		units.FormatCountOf(discarded.Entries, "entry", "entries"))
	return out.Flush()
}
