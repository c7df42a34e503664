package updater

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/internal/units"
	"docstore/queue"
	"docstore/queue/maintain"
)

func newTruncate(env *cli.Env) *cobra.Command {
	var dir, to string
	var opts maintain.TruncateOptions
	command := &cobra.Command{
		Use:   "truncate --queue DIR --to SEGMENT|POSITION",
		Short: "Remove the newest entries of a queue",
		Long: `Truncate removes all entries after a segment or from a position on, for example
those of a bad ingest. With --to 8 the queue ends with segment 8; with --to
8/4096/2 it ends before the entry at this address. "stats" prints the position
of the end of a queue: record it before an ingest.

Do not remove segments by hand. If that was done, or an older copy was
restored, the updater refuses the queue. Truncate then repairs it: the numbers
of the missing segments are not used again.

A rewrite, FIRST-LAST.GENERATION.seg, replaces the truncated segments and holds
the remaining entries of the first of them. It is copied like any segment. Then
these segments are removed. Daemons that have read further rebuild their index
from the queue. "append --resume" continues after the last whole block that is
kept.

Compact drops versions that newer entries have replaced. If these newer entries
are to be removed, truncate refuses, because the older versions cannot be
restored. With --lose-compacted it removes them anyway; append these documents
again.

No updater may be writing. Daemons may be running. With --dry-run nothing is
changed.`,
		Example: `  docstore-updater truncate --queue /srv/queue/jobs --to 8 --dry-run
  docstore-updater truncate --queue /srv/queue/jobs --to 8/4096/0`,
		Args: cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		from, err := parseEnd("--to", to)
		if err != nil {
			return err
		}
		opts.Logger, opts.Now = env.Log, env.Now
		return truncate(command.Context(), env, dir, from, &opts)
	}
	addQueueFlag(command, &dir)
	command.Flags().StringVar(&to, "to", "", "last segment to keep, or new position of the queue's end")
	if err := command.MarkFlagRequired("to"); err != nil {
		panic(err) // the flag was just defined
	}
	command.Flags().BoolVar(&opts.DryRun, "dry-run", false, "show what would be done, and change nothing")
	command.Flags().BoolVar(&opts.LoseCompacted, "lose-compacted", false, "accept that versions dropped by compact are not restored")
	return command
}

// parseEnd returns the first address after a segment, or the address of a position.
func parseEnd(flag, to string) (queue.Address, error) {
	problem := cli.Usagef("%s %s: give a segment, such as 8, or a position, such as 8/4096/0", flag, to)
	if !strings.Contains(to, "/") {
		n, err := strconv.ParseUint(to, 10, 32)
		if err != nil || n == math.MaxUint32 {
			return queue.Address{}, problem
		}
		return queue.Address{Segment: queue.SegmentID(n) + 1}, nil
	}
	from, err := queue.ParseAddress(to)
	if err != nil {
		return from, problem
	}
	return from, nil
}

func truncate(ctx context.Context, env *cli.Env, dir string, from queue.Address, opts *maintain.TruncateOptions) error {
	if err := requireOneShard(dir, "truncate"); err != nil {
		return err
	}
	report, err := maintain.Truncate(ctx, dir, from, opts)
	if err != nil {
		return cannotOpen(dir, err)
	}
	out := cli.NewOutput(env.Stdout)
	did, removed := "removed from the queue", "removed"
	if opts.DryRun {
		did, removed = "would be removed from the queue", "would be removed"
	}
	out.Printf("%s from %s to before %s %s\n", units.FormatCountOf(report.Entries, "entry", "entries"), report.From, report.To, did)
	for _, n := range report.Missing {
		out.Printf("segment %d is missing; its entries are not counted, and its number is not used again\n", n)
	}
	for _, name := range report.Removed {
		out.Printf("%s %s\n", name, removed)
	}
	if report.Rewrite != "" {
		verb := "replaces"
		if opts.DryRun {
			verb = "would replace"
		}
		out.Printf("%s %s them\n", report.Rewrite, verb)
	}
	switch {
	case opts.DryRun:
		out.Printf("nothing was changed\n")
	case report.End.IsZero():
		out.Printf("the queue has no entries\n")
	default:
		out.Printf("the queue ends at %s\n", report.End.Next)
	}
	return out.Flush()
}
