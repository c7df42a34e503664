package updater

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/meter"
	"docstore/internal/units"
	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/maintain"
	"docstore/queue/publish"
	"docstore/queue/shardset"
)

func newCompact(env *cli.Env) *cobra.Command {
	var dir string
	var quiet bool
	var deleteAfter, eraseAfter time.Duration
	var collection bucketFlags
	keep := uint64(defaultKeepCompact)
	maxDead := maintain.DefaultMaxDead
	memory := units.Size(maintain.DefaultUsageMemory)
	command := &cobra.Command{
		Use:   "compact --queue DIR",
		Short: "Free the space of overwritten, deleted and expired documents",
		Long: `Compact rewrites sealed segments of which more than --max-dead is dead:
documents that were overwritten or deleted later, or have expired (see stats
--live). Live documents keep their addresses, so indexes remain valid. An
updater and daemons may be running.

A rewrite, FIRST-LAST.GENERATION.seg, is written next to the segments that it
replaces, and is copied like them. Without --delete-after nothing is removed.
With it, replaced segments are removed once their rewrite is that old and
verified. Choose it so that copies have time to fetch the rewrite, and run
compact regularly: each run removes what earlier runs have replaced.

--erase-deleted-older-than also rewrites each sealed segment that still holds a
document which was deleted or overwritten, or has expired, at least that long
ago, and each whose dictionary may contain one. When the replaced segments are
removed too, with --delete-after, no byte of such a document remains in the
directory. A segment that is still being written cannot be rewritten: compact
then exits with status 1. Several shards share a dictionary that may contain
documents of all of them: the segments written since the last erasure are
rewritten, and the next updater trains another one.

--bucket is needed for a queue that is published: versions stay that are the
newest in a manifest which is announced, later than the announced one,
validated, pinned, a canary, retained, or among the --keep-manifests newest. If
such a manifest holds documents to be erased, compact names it and exits with
status 1. A file in the bucket stays until gc deletes the last manifest that
lists it.`,
		Example: `  docstore-updater compact --queue /srv/queue/jobs --max-dead 0.5
  docstore-updater compact --queue /srv/queue/jobs --delete-after 24h
  docstore-updater compact --queue /srv/queue/jobs --delete-after 24h --erase-deleted-older-than 720h`,
		Args: cobra.NoArgs,
	}
	command.PreRunE = func(*cobra.Command, []string) error {
		var problems []error
		if !(maxDead > 0 && maxDead <= 1) {
			problems = append(problems, cli.Usagef("--max-dead %v: must be more than 0 and at most 1, such as 0.5", maxDead))
		}
		if deleteAfter < 0 {
			problems = append(problems, cli.Usagef("--delete-after %s: must not be negative", deleteAfter))
		}
		if eraseAfter < 0 {
			problems = append(problems, cli.Usagef("--erase-deleted-older-than %s: must not be negative", eraseAfter))
		}
		return errors.Join(problems...)
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		c := compaction{env: env, dir: dir, quiet: quiet}
		if collection.url != "" {
			if err := c.findRetained(command.Context(), &collection, keep); err != nil {
				return err
			}
		}
		return c.run(command.Context(), &maintain.CompactOptions{
			EraseDead: command.Flags().Changed("erase-deleted-older-than"), EraseAfter: eraseAfter,
			MaxDead: maxDead, MemoryBytes: int64(memory), Now: env.Now,
			DeleteOriginals: command.Flags().Changed("delete-after"), DeleteAfter: deleteAfter,
		})
	}
	addQueueFlag(command, &dir)
	command.Flags().Float64Var(&maxDead, "max-dead", maxDead, "share of a segment that may be dead")
	command.Flags().DurationVar(&deleteAfter, "delete-after", 0, "remove replaced segments whose rewrite is this old; default: remove nothing")
	command.Flags().DurationVar(&eraseAfter, "erase-deleted-older-than", 0, "also rewrite segments with documents that have been dead this long")
	command.Flags().Var(&memory, "memory", "memory for finding dead documents")
	command.Flags().BoolVar(&quiet, "quiet", false, "do not show progress, and log only warnings")
	command.Flags().Uint64Var(&keep, "keep-manifests", keep, "with --bucket: number of the newest manifests whose versions stay")
	command.Flags().StringVar(&collection.url, "bucket", "", "URL of the collection, if the queue is published")
	addS3Flags(command, &collection.options)
	return command
}

// defaultKeepCompact is the default of --keep-manifests: the number of checkpoints of a server.
const defaultKeepCompact = 3

// compaction are the flags of compact.
type compaction struct {
	env      *cli.Env
	dir      string
	quiet    bool
	retained []publish.RetainedState
}

// findRetained finds the manifests whose versions stay.
func (c *compaction) findRetained(ctx context.Context, flags *bucketFlags, keep uint64) error {
	if err := requireDir(c.dir); err != nil {
		return err
	}
	b, err := flags.open(ctx, c.env.Log)
	if err != nil {
		return err
	}
	defer b.Close()
	c.retained, err = publish.RetainedStates(ctx, b, c.dir, keep, &publish.Options{Now: c.env.Now})
	return lifeError("compact", c.dir, flags.url, err)
}

func (c *compaction) run(ctx context.Context, opts *maintain.CompactOptions) error {
	env := c.env
	dirs, err := queueDirs(c.dir)
	if err != nil {
		return err
	}
	if c.quiet {
		env = env.Quiet()
	}
	if opts.EraseDead {
		// First: an updater that starts now trains another one.
		if err := shardset.RemoveDictionary(vfs.OS, c.dir); err != nil {
			return fmt.Errorf("removing the dictionary of %s: %w", c.dir, err)
		}
	}
	opts.Logger = env.Log
	progress, finish := meter.Work(env, "compacting", c.quiet)
	defer finish()
	opts.Progress = progress
	var sum compactSum
	for shard, dir := range dirs {
		opts.RetainedEnds = publish.RetainedEnds(c.retained, shard)
		var report maintain.CompactReport
		if report, err = maintain.Compact(ctx, dir, opts); err != nil {
			err = cannotOpen(dir, err)
		}
		sum.add(dir, shard, report)
		if err != nil {
			break
		}
	}
	finish()
	out := cli.NewOutput(env.Stdout)
	out.Printf("%s rewritten into %d: %s became %s\n", units.FormatCountOf(int64(sum.Replaced), "segment", "segments"), sum.Rewrites,
		units.FormatBytes(sum.BytesBefore), units.FormatBytes(sum.BytesAfter))
	if opts.DeleteOriginals {
		out.Printf("%s removed: %s\n", units.FormatCountOf(int64(sum.Deleted), "replaced file", "replaced files"), units.FormatBytes(sum.DeletedBytes))
	}
	if err != nil {
		return errors.Join(err, out.Flush())
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := c.checkHeld(sum.held); err != nil {
		return err
	}
	if sum.notErased != "" {
		return fmt.Errorf("%s contains documents to be erased but is not sealed; seal it (docstore-updater seal, "+
			"when no updater is writing), or wait until it is sealed, and run this again", sum.notErased)
	}
	return nil
}

// compactSum is the sum of the reports of the shards.
type compactSum struct {
	maintain.CompactReport
	notErased string // the first open segment with documents to be erased; empty: there is none
	held      []heldEnd
}

// heldEnd is the end of a retained state in a shard for which documents to be erased stay.
type heldEnd struct {
	shard int
	end   queue.SegmentID
}

func (c *compactSum) add(dir string, shard int, r maintain.CompactReport) {
	c.Replaced += r.Replaced
	c.Rewrites += r.Rewrites
	c.BytesBefore += r.BytesBefore
	c.BytesAfter += r.BytesAfter
	c.Deleted += r.Deleted
	c.DeletedBytes += r.DeletedBytes
	if len(r.NotErased) > 0 && c.notErased == "" {
		c.notErased = fmt.Sprintf("segment %d of %s", r.NotErased[0], dir)
	}
	for _, end := range r.Held {
		c.held = append(c.held, heldEnd{shard, end})
	}
}

// checkHeld returns an error if manifests hold documents that were to be erased.
func (c *compaction) checkHeld(held []heldEnd) error {
	var numbers []string
	for _, state := range c.retained {
		if slices.ContainsFunc(held, func(h heldEnd) bool { return state.Sealed[h.shard] == h.end }) {
			numbers = append(numbers, strconv.FormatUint(state.Number, 10))
		}
	}
	if len(numbers) == 0 {
		return nil
	}
	return fmt.Errorf("documents to be erased stay for manifest %s; announce a later one, end what holds it (unpin, retain --release), "+
		"or lower --keep-manifests, and run this again; then delete it from the bucket with gc --keep", strings.Join(numbers, ", "))
}
