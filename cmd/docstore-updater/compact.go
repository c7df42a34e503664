package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/queue"
)

func newCompact(env *cli.Env) *cobra.Command {
	var dir string
	var quiet bool
	var deleteAfter, eraseAfter time.Duration
	maxDead := queue.DefaultMaxDead
	memory := cli.Size(queue.DefaultUsageMemory)
	command := &cobra.Command{
		Use:   "compact --queue DIR",
		Short: "Give back the space of documents that were overwritten or deleted",
		Long: `Compact rewrites sealed segments of which more than --max-dead is dead: documents
that a later line overwrote or deleted, or that have expired (see stats --live). What
is kept keeps its address, so indexes stay as they are. An updater may be writing
and daemons may be serving meanwhile.

A rewrite stands beside the segments that it replaces, as FIRST-LAST.GENERATION.seg,
and is copied like them. Nothing is removed before --delete-after is given: then
what was replaced goes when its rewrite is that old and sound to its last byte.
Leave the copies time to fetch the rewrite before, and run compact from time to
time, since it removes what an earlier run has replaced.

--erase-deleted-older-than also rewrites each sealed segment, however little of it is
dead, that still holds a document which was deleted or overwritten, or has expired,
that long ago or longer; and each whose dictionary may have been made of one. When
what was replaced is removed, too, with --delete-after, no byte of such a document is
left in the directory. A segment that is being written cannot be rewritten: then
compact says so and exits with status 1.`,
		Example: `  docstore-updater compact --queue /srv/queue/jobs --max-dead 0.5
  docstore-updater compact --queue /srv/queue/jobs --delete-after 24h
  docstore-updater compact --queue /srv/queue/jobs --delete-after 24h --erase-deleted-older-than 720h`,
		Args: cobra.NoArgs,
	}
	command.PreRunE = func(*cobra.Command, []string) error {
		var problems []error
		if !(maxDead > 0 && maxDead <= 1) {
			problems = append(problems, cli.Usagef("--max-dead %v: it must be a share above 0 and up to 1, such as 0.5", maxDead))
		}
		if deleteAfter < 0 {
			problems = append(problems, cli.Usagef("--delete-after %s: it cannot be negative", deleteAfter))
		}
		if eraseAfter < 0 {
			problems = append(problems, cli.Usagef("--erase-deleted-older-than %s: it cannot be negative", eraseAfter))
		}
		return errors.Join(problems...)
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		return compact(command.Context(), env, dir, quiet, &queue.CompactOptions{
			EraseDead: command.Flags().Changed("erase-deleted-older-than"), EraseAfter: eraseAfter,
			MaxDead: maxDead, MemoryBytes: int64(memory), Now: env.Now,
			DeleteOriginals: command.Flags().Changed("delete-after"), DeleteAfter: deleteAfter,
		})
	}
	addQueueFlag(command, &dir)
	command.Flags().Float64Var(&maxDead, "max-dead", maxDead, "share of a segment that may be dead")
	command.Flags().DurationVar(&deleteAfter, "delete-after", 0, "remove what was replaced when its rewrite is this old; without it nothing is removed")
	command.Flags().DurationVar(&eraseAfter, "erase-deleted-older-than", 0, "rewrite whatever holds a document that has been dead for so long; without it only what is worth it")
	command.Flags().Var(&memory, "memory", "what may be taken to tell what is dead")
	command.Flags().BoolVar(&quiet, "quiet", false, "show no progress, and log nothing but warnings")
	return command
}

func compact(ctx context.Context, env *cli.Env, dir string, quiet bool, opts *queue.CompactOptions) error {
	if err := requireDir(dir); err != nil {
		return err
	}
	if quiet {
		env = env.Quiet()
	}
	opts.Logger = env.Log
	var meter *cli.Meter
	opts.Progress = func(done, total int64) {
		if meter == nil && !quiet {
			meter = cli.NewMeter(env, "compacting", total)
		}
		meter.SetTotal(total)
		meter.Update(0, done)
	}
	report, err := queue.Compact(ctx, dir, opts)
	meter.Finish()
	out := cli.NewOutput(env.Stdout)
	out.Printf("%s rewritten into %d: %s became %s\n", cli.FormatCountOf(int64(report.Replaced), "segment", "segments"), report.Rewrites,
		cli.FormatBytes(report.BytesBefore), cli.FormatBytes(report.BytesAfter))
	if opts.DeleteOriginals {
		out.Printf("%s removed: %s\n", cli.FormatCountOf(int64(report.Deleted), "replaced file", "replaced files"), cli.FormatBytes(report.DeletedBytes))
	}
	if err != nil {
		return cannotOpen(dir, err)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if left := report.NotErased; len(left) > 0 {
		return fmt.Errorf("segment %d of %s holds documents to be erased and is not sealed; seal it (docstore-updater seal, "+
			"when no updater is writing), or wait until it is sealed, and run this again", left[0], dir)
	}
	return nil
}
