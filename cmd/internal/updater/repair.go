package updater

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/meter"
	"docstore/internal/units"
	"docstore/queue"
	"docstore/queue/maintain"
)

func newRepair(env *cli.Env) *cobra.Command {
	var dir string
	var dryRun, quiet bool
	command := &cobra.Command{
		Use:   "repair --queue DIR",
		Short: "Repair a damaged queue and list lost documents",
		Long: `Repair verifies the whole queue at its source and saves the readable entries of
damaged and missing segments, so that the updater and the daemons can continue.
Use it as the last resort: if a copy of the queue on another machine has the
segment intact, copy it back instead, and nothing is lost.

Readable entries keep their addresses. They are written to a rewrite,
FIRST-LAST.GENERATION.seg, which is copied to the other machines like any
segment; the damaged file is kept as NAME.seg.damaged. Losses are listed on
standard output:

  lost: document "17" at 3/128/4          unavailable until it is appended or deleted
                                          again
  lost: all from 3/128/0 to before        unknown entries: documents, newer versions
        3/4096/0                          and deletes
  lost: perhaps "18" at 3/128/5           an id that was read from damaged bytes

If a delete or a newer version is lost together with its id, an index that is
rebuilt from the queue serves the previous version. Append such documents or
deletes again. Records that the input still holds after the last known place
are appended again by append --resume.

No updater may be writing; daemons may be running. With --dry-run nothing is
changed.`,
		Example: `  docstore-updater repair --queue /srv/queue/jobs --dry-run
  docstore-updater repair --queue /srv/queue/jobs > lost.txt`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return repair(command.Context(), env, dir, dryRun, quiet)
		},
	}
	addQueueFlag(command, &dir)
	command.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be done and lost, and change nothing")
	command.Flags().BoolVar(&quiet, "quiet", false, "do not show progress")
	return command
}

func repair(ctx context.Context, env *cli.Env, dir string, dryRun, quiet bool) error {
	if err := requireOneShard(dir, "repair"); err != nil {
		return err
	}
	out := cli.NewOutput(env.Stdout)
	progress, finish := meter.Work(env, "repairing", quiet)
	repaired, err := maintain.Repair(ctx, dir, &maintain.RepairOptions{
		DryRun: dryRun, Logger: env.Log, Now: env.Now,
		OnLoss: func(l maintain.Loss) error {
			out.Printf("lost: %s\n", describeLoss(l))
			return out.Err()
		},
		Progress: progress,
	})
	finish()
	unknown := 0
	for _, file := range repaired {
		unknown += file.LostRanges
		printRepaired(out, file, dryRun)
	}
	switch {
	case err == nil && len(repaired) == 0:
		out.Printf("nothing is damaged\n")
	case dryRun:
		out.Printf("nothing was changed; run without --dry-run to repair\n")
	}
	if flushErr := out.Flush(); flushErr != nil {
		return flushErr
	}
	if unknown > 0 {
		env.Log.Warn("entries lost without ids may include deletes and newer versions: "+
			"an index that is rebuilt serves the versions before them", "places", unknown)
	}
	if errors.Is(err, queue.ErrLocked) {
		return cannotOpen(dir, err)
	}
	return err
}

func describeLoss(l maintain.Loss) string {
	switch {
	case l.Unproven:
		return fmt.Sprintf("perhaps %q at %s", l.ID, l.From)
	case l.ID != nil:
		return fmt.Sprintf("document %q at %s", l.ID, l.From)
	}
	return fmt.Sprintf("all from %s to before %s", l.From, l.To)
}

func printRepaired(out *cli.Output, file maintain.RepairedFile, dryRun bool) {
	for _, damage := range file.Damage {
		out.Printf("damaged: %s\n", damage)
	}
	switch {
	case file.Rewrite == "":
		out.Printf("%s: damaged, and not needed: its entries are intact elsewhere\n", file.Path)
		return
	case file.Missing:
		out.Printf("%s: missing", file.Path)
		if file.Last > file.First {
			out.Printf(", and what follows to segment %d", file.Last)
		}
	default:
		out.Printf("%s: damaged", file.Path)
	}
	parts := []string{units.FormatCountOf(file.Kept, "entry kept", "entries kept")}
	if file.LostDocuments > 0 {
		parts = append(parts, units.FormatCountOf(file.LostDocuments, "document lost", "documents lost"))
	}
	if file.LostRanges > 0 {
		parts = append(parts, units.FormatCountOf(int64(file.LostRanges), "place lost without ids", "places lost without ids"))
	}
	if file.UnprovenExpiries > 0 {
		parts = append(parts, units.FormatCountOf(file.UnprovenExpiries, "expiry kept from damaged bytes", "expiries kept from damaged bytes"))
	}
	verb := "holds it now"
	if dryRun {
		verb = "would hold it"
	}
	out.Printf("; %s %s: %s\n", file.Rewrite, verb, strings.Join(parts, ", "))
}
