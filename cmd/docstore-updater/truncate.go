package main

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/queue"
)

func newTruncate(env *cli.Env) *cobra.Command {
	var dir, to string
	var opts queue.TruncateOptions
	command := &cobra.Command{
		Use:   "truncate --queue DIR --to SEGMENT|POSITION",
		Short: "Take back the newest entries of a queue",
		Long: `Truncate takes back all entries behind a segment or a position, for example those
of a bad ingest. With --to 8 the queue ends with segment 8; with --to 8/4096/2 it
ends before the entry at this address. "stats" prints the position of the end of a
queue: note it before an ingest.

Do not remove segments by hand. If it was done, or an older copy was restored, the
updater refuses the queue, and truncate puts it in order: the numbers of the
segments that are missing are not used again.

A rewrite, FIRST-LAST.GENERATION.seg, replaces the segments that are taken back and
holds the entries to be kept of the first of them. It is copied like any segment.
Then these segments are removed. Daemons that have read further build their index
again from the queue. "append --resume" continues behind the last whole block that
is kept.

Compact drops versions that newer entries have replaced. If these newer entries are
to be taken back, truncate refuses: the older versions do not come back. With
--lose-compacted it takes them back all the same; append these documents again.

No updater may be writing. Daemons may run. With --dry-run nothing is changed.`,
		Example: `  docstore-updater truncate --queue /srv/queue/jobs --to 8 --dry-run
  docstore-updater truncate --queue /srv/queue/jobs --to 8/4096/0`,
		Args: cobra.NoArgs,
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		from, err := parseTruncateTo(to)
		if err != nil {
			return err
		}
		opts.Logger, opts.Now = env.Log, env.Now
		return truncate(command.Context(), env, dir, from, &opts)
	}
	addQueueFlag(command, &dir)
	command.Flags().StringVar(&to, "to", "", "last segment to keep, or the position where the queue is to end")
	if err := command.MarkFlagRequired("to"); err != nil {
		panic(err) // the flag was defined a line above
	}
	command.Flags().BoolVar(&opts.DryRun, "dry-run", false, "say what would be done, and change nothing")
	command.Flags().BoolVar(&opts.LoseCompacted, "lose-compacted", false, "allow that versions dropped by compact do not come back")
	return command
}

// parseTruncateTo returns the first address to be taken back.
func parseTruncateTo(to string) (queue.Address, error) {
	if !strings.Contains(to, "/") {
		n, err := strconv.ParseUint(to, 10, 32)
		if err != nil || n == math.MaxUint32 {
			return queue.Address{}, cli.Usagef("--to %s: give a segment, such as 8, or a position, such as 8/4096/0", to)
		}
		return queue.Address{Segment: queue.SegmentID(n) + 1}, nil
	}
	from, err := queue.ParseAddress(to)
	if err != nil {
		return from, cli.Usagef("--to %s: give a segment, such as 8, or a position, such as 8/4096/0", to)
	}
	return from, nil
}

func truncate(ctx context.Context, env *cli.Env, dir string, from queue.Address, opts *queue.TruncateOptions) error {
	if err := requireDir(dir); err != nil {
		return err
	}
	report, err := queue.Truncate(ctx, dir, from, opts)
	if err != nil {
		return cannotOpen(dir, err)
	}
	out := cli.NewOutput(env.Stdout)
	did, removed := "taken back", "removed"
	if opts.DryRun {
		did, removed = "would be taken back", "would be removed"
	}
	out.Printf("%s from %s to before %s %s\n", cli.FormatCountOf(report.Entries, "entry", "entries"), report.From, report.To, did)
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
