package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/queue"
)

func newRepair(env *cli.Env) *cobra.Command {
	var dir string
	var dryRun, quiet bool
	command := &cobra.Command{
		Use:   "repair --queue DIR",
		Short: "Make a damaged queue whole again, without what is lost",
		Long: `Repair verifies the whole queue at its source and saves what can be saved of
damaged and missing segments, so that the updater and the daemons go on. It is the
last resort: if a copy of the queue on any other machine has the segment whole,
copy that back instead, and nothing is lost.

What is whole keeps its address. It goes into a rewrite, FIRST-LAST.GENERATION.seg,
which is copied to the other machines like any segment; the damaged file keeps its
bytes as NAME.seg.damaged. What is lost is listed on standard output:

  lost: document "17" at 3/128/4          it is unavailable until it is appended, or
                                          deleted, again
  lost: all from 3/128/0 to before        nobody knows what stood there: documents,
        3/4096/0                          newer versions and deletes
  lost: perhaps "18" at 3/128/5           an id that was read from damaged bytes

Where a delete or a newer version is lost together with its id, an index that is made
of the queue anew serves the version before it. Append such documents or deletes
again. What the input still holds behind the last place that is known, append
--resume appends again by itself.

No updater may be writing, daemons may go on. With --dry-run nothing is changed.`,
		Example: `  docstore-updater repair --queue /srv/queue/jobs --dry-run
  docstore-updater repair --queue /srv/queue/jobs > lost.txt`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return repair(command.Context(), env, dir, dryRun, quiet)
		},
	}
	addQueueFlag(command, &dir)
	command.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done and lost, and change nothing")
	command.Flags().BoolVar(&quiet, "quiet", false, "show no progress")
	return command
}

func repair(ctx context.Context, env *cli.Env, dir string, dryRun, quiet bool) error {
	if err := requireDir(dir); err != nil {
		return err
	}
	out := cli.NewOutput(env.Stdout)
	var meter *cli.Meter
	repaired, err := queue.Repair(ctx, dir, &queue.RepairOptions{
		DryRun: dryRun, Logger: env.Log, Now: env.Now,
		OnLoss: func(l queue.Loss) error {
			out.Printf("lost: %s\n", describeLoss(l))
			return out.Err()
		},
		Progress: func(done, total int64) {
			if meter == nil && !quiet {
				meter = cli.NewMeter(env, "repairing", total)
			}
			meter.SetTotal(total)
			meter.Update(0, done)
		},
	})
	meter.Finish()
	unknown := 0
	for _, file := range repaired {
		unknown += file.LostRanges
		printRepaired(out, file, dryRun)
	}
	switch {
	case err == nil && len(repaired) == 0:
		out.Printf("nothing is damaged\n")
	case dryRun:
		out.Printf("nothing was changed; without --dry-run it is done\n")
	}
	if flushErr := out.Flush(); flushErr != nil {
		return flushErr
	}
	if unknown > 0 {
		env.Log.Warn("deletes and newer versions may be among what is lost without its id: "+
			"an index that is made anew serves the versions before them", "places", unknown)
	}
	if errors.Is(err, queue.ErrLocked) {
		return cannotOpen(dir, err)
	}
	return err
}

func describeLoss(l queue.Loss) string {
	switch {
	case l.Unproven:
		return fmt.Sprintf("perhaps %q at %s", l.ID, l.From)
	case l.ID != nil:
		return fmt.Sprintf("document %q at %s", l.ID, l.From)
	}
	return fmt.Sprintf("all from %s to before %s", l.From, l.To)
}

func printRepaired(out *cli.Output, file queue.RepairedFile, dryRun bool) {
	for _, damage := range file.Damage {
		out.Printf("damaged: %s\n", damage)
	}
	switch {
	case file.Rewrite == "":
		out.Printf("%s: damaged, and not needed: what it holds is whole elsewhere\n", file.Path)
		return
	case file.Missing:
		out.Printf("%s: missing", file.Path)
		if file.Last > file.First {
			out.Printf(", and what follows to segment %d", file.Last)
		}
	default:
		out.Printf("%s: damaged", file.Path)
	}
	parts := []string{cli.FormatCountOf(file.Kept, "entry kept", "entries kept")}
	if file.LostDocuments > 0 {
		parts = append(parts, cli.FormatCountOf(file.LostDocuments, "document lost", "documents lost"))
	}
	if file.LostRanges > 0 {
		parts = append(parts, cli.FormatCountOf(int64(file.LostRanges), "place lost without ids", "places lost without ids"))
	}
	if file.UnprovenExpiries > 0 {
		parts = append(parts, cli.FormatCountOf(file.UnprovenExpiries, "expiry kept from damaged bytes", "expiries kept from damaged bytes"))
	}
	verb := "holds it now"
	if dryRun {
		verb = "would hold it"
	}
	out.Printf("; %s %s: %s\n", file.Rewrite, verb, strings.Join(parts, ", "))
}
