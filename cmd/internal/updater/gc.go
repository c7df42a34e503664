package updater

import (
	"fmt"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/internal/units"
	"docstore/queue/publish"
)

// defaultKeep is the number of manifests that gc keeps: two weeks of hourly ones.
const defaultKeep = 336

func newGC(env *cli.Env) *cobra.Command {
	var flags bucketFlags
	var keep uint64
	var dryRun bool
	command := &cobra.Command{
		Use:   "gc --bucket URL [--keep N]",
		Short: "Delete old manifests and unused files from an object store",
		Long: `Gc drops all manifests but the newest --keep ones and those that are announced,
validated, pinned or retained, and deletes the objects that no other manifest
lists. A dropped manifest cannot be pinned or restored any more. Publishers and
servers may be running; files of the publisher that started last are kept until
another one has started. It lists the bucket once.`,
		Example: `  docstore-updater gc --bucket s3://company-docs/jobs --keep 100 --dry-run`,
		Args:    cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		b, log, err := flags.openLog(command.Context(), env)
		if err != nil {
			return err
		}
		defer b.Close()
		result, err := publish.Collect(command.Context(), b, log, keep, dryRun)
		if err != nil {
			return fmt.Errorf("gc %s: %w", flags.url, err)
		}
		out, verb := cli.NewOutput(env.Stdout), "deleted"
		if dryRun {
			verb = "would be deleted"
		}
		out.Printf("%s and %s of %s %s; the oldest manifest is %d\n", units.FormatCountOf(int64(result.Manifests), "manifest", "manifests"),
			units.FormatCountOf(int64(result.Files), "file", "files"), units.FormatBytes(result.Bytes), verb, max(result.Oldest, 1))
		return out.Flush()
	}
	flags.add(command)
	command.Flags().Uint64Var(&keep, "keep", defaultKeep, "number of the newest manifests to keep")
	command.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be deleted, and change nothing")
	return command
}

func newRetain(env *cli.Env) *cobra.Command {
	c := collectionChange{env: env}
	release := false
	command := &cobra.Command{
		Use:   "retain --bucket URL --to MANIFEST [--release]",
		Short: "Keep a manifest when gc drops others of its age",
		Long: `Retain keeps a manifest and its files until --release, so that it can be pinned
or restored after gc.`,
		Example: `  docstore-updater retain --bucket s3://company-docs/jobs --to 41`,
		Args:    cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		return c.update(command.Context(), !release, func(r publish.Record, ref publish.Ref) (publish.Record, error) {
			if release {
				return r.Release(c.number)
			}
			return r.Retain(ref)
		})
	}
	c.flags.add(command)
	c.addTo(command, "number of the manifest", true)
	command.Flags().BoolVar(&release, "release", false, "end retaining the manifest")
	return command
}
