package updater

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"time"

	"github.com/spf13/pflag"

	"docstore/cmd/internal/cli"
	"docstore/cmd/internal/meter"
	"docstore/ingest"
	"docstore/ingest/sources"
	"docstore/queue"
	"docstore/queue/publish"
	"docstore/queue/shardset"
)

// replaceMaxDeletes is the default of --max-deletes with --replace.
const replaceMaxDeletes = 10

// notWithReplace are the flags that have no meaning with --replace, and why.
var notWithReplace = []struct{ flag, why string }{
	{"resume", "the input is read from its start"},
	{"follow", "the input must end"},
	{"skip-bad", "the document of a skipped record would be deleted"},
	{"bad-lines", "the document of a skipped record would be deleted"},
	{"flush-interval", "all changes are flushed at once"},
	{"flush-every", "all changes are flushed at once"},
	{"segment-age", "all changes are flushed at once"},
	{"rate", "all changes are flushed at once"},
	{"max-bad", "an invalid record is an error"},
	{"max-rate", "all changes are announced at once"},
	{"metrics", "the run ends"},
	{"time-field", "the run ends"},
	{"canary", "the run ends"},
}

// completeReplace refuses the flags that contradict --replace, and sets its defaults.
func (o *appendOptions) completeReplace(flags *pflag.FlagSet) error {
	var problems []error
	for _, not := range notWithReplace {
		if flags.Changed(not.flag) {
			problems = append(problems, cli.Usagef("--%s contradicts --replace: %s", not.flag, not.why))
		}
	}
	o.resume = false
	if !flags.Changed("max-deletes") {
		o.bounds.deletes = replaceMaxDeletes
	}
	if !flags.Changed("segment-size") {
		o.segmentSize = queue.MaxSegmentBytes // readers see a segment at once
	}
	return errors.Join(problems...)
}

// replaceAll makes the queue equal to the input, and publishes the result as one manifest. target
// may be nil.
func (o *appendOptions) replaceAll(ctx context.Context, env *cli.Env, in *sources.Input, target *store) (err error) {
	writer, err := o.openQueue(env, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, writer.Close()) }() // a second time after a success
	var live *publish.Live
	if target != nil {
		none := func() ingest.Progress { return ingest.Progress{} } // --max-deletes concerns all documents
		if live, err = publish.NewLive(ctx, target, o.queueDir, o.liveOptions(env, target, writer.Seal, none)); err != nil {
			return err
		}
	}
	from, err := in.Opener.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	started := env.Now()
	done, err := o.replaceFrom(ctx, env, in, from, writer)
	if err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	env.Log.Info("replaced", "equal", done.Equal, "changed", done.Changed, "added", done.Added, "deleted", done.Deleted,
		"seconds", env.Now().Sub(started).Round(time.Millisecond).Seconds())
	if live == nil {
		return nil
	}
	return live.Finish(ctx)
}

// replaceFrom makes the queue equal to a source.
func (o *appendOptions) replaceFrom(ctx context.Context, env *cli.Env, in *sources.Input, from ingest.Source, writer *shardset.Writer) (ingest.Replaced, error) {
	options := ingest.ReplaceOptions{
		Dir: o.queueDir, Parsing: in.Parsing, MaxDeletes: o.bounds.deletes / 100, DryRun: o.dryRun, Logger: env.Log, Now: env.Now,
	}
	if o.bounds.deletes == 0 {
		options.MaxDeletes = 1
	}
	var shown *meter.Meter // nil with --quiet
	if !o.quiet {
		shown = meter.New(env, "reading", totalBytes(from))
		options.Read = shown.Update
	}
	done, err := ingest.Replace(ctx, from, writer, options)
	shown.Finish()
	warnOfFields(env, in)
	return done, explainReplace(err, in)
}

// countReplaced prints how many documents a replacement would change. A queue that does not exist
// is not created.
func (o *appendOptions) countReplaced(ctx context.Context, env *cli.Env, in *sources.Input) (err error) {
	if _, err := os.Stat(o.queueDir); errors.Is(err, fs.ErrNotExist) {
		if o.queueDir, err = os.MkdirTemp("", "docstore-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.queueDir)) }() // an empty queue
	}
	writer, err := o.openQueue(env, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, writer.Close()) }()
	from, err := in.Opener.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	done, err := o.replaceFrom(ctx, env, in, from, writer)
	var many *ingest.TooManyDeletesError
	if err != nil && !errors.As(err, &many) {
		return err
	}
	_, printErr := fmt.Fprintf(env.Stdout, "would append %d new and %d changed documents, skip %d equal ones, and delete %d\n", done.Added, done.Changed, done.Equal, done.Deleted)
	return errors.Join(printErr, err)
}

// explainReplace adds advice to an error of ingest.Replace.
func explainReplace(err error, in *sources.Input) error {
	var many *ingest.TooManyDeletesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &many):
		return fmt.Errorf("%s: %w; nothing was changed. If the input is complete, allow it with --max-deletes %d",
			in.Name, err, int(math.Ceil(many.Share()*100)))
	case errors.Is(err, ingest.ErrInvalid):
		return cli.Bare(fmt.Errorf("%w; nothing was changed", err))
	case errors.Is(err, ingest.ErrInterrupted):
		return fmt.Errorf("interrupted before all of %s was read; nothing was changed", in.Name)
	case errors.Is(err, ingest.ErrWriter):
		return err
	}
	return fmt.Errorf("%w; nothing was changed", err)
}
